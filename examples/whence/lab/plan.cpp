#include "examples/whence/lab/plan.h"

#include <algorithm>
#include <map>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/study/train_request.h"
#include "examples/whence/tasks/task_training.h"
#include "nn/io/sha256.h"
#include "tensor/error.h"

namespace whence {
namespace {

std::int64_t whole_number(const Settings& values, const std::string& name) {
  const std::string* text = find_setting(values, name);
  const auto number = text ? parse_number<std::int64_t>(*text) : std::nullopt;
  if (!number) throw Error("train: --", name, " asked for; a whole number required");
  return *number;
}

// Everything but letters, digits and what no shell minds, as %2F.
std::string escaped(const std::string& text, const std::string& also_plain) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || also_plain.find(c) != std::string::npos)
      result += c;
    else
      (result += '%', result += digits[byte / 16]) += digits[byte % 16];
  }
  return result;
}

// A folder's name. Systems take no long ones: the end of such a one gives way to a hash of all of it.
std::string fitting(std::string name) {
  constexpr std::size_t longest = 200;  // leaves room for a seed and for what a pool adds
  return name.size() <= longest ? name : name.substr(0, longest - 17) + "-" + sha256(name).substr(0, 16);
}

// "cdape(kerple, kernel=3) + rope" as "cdape-kerple,kernel=3-+rope": a parenthesis that opens stands before a letter,
// one that closes and a minus sign do not, and those that close at the end are left out. No two canonical texts have
// one name.
std::string scheme_folder(const std::string& scheme) {
  std::string name;
  for (const char c : scheme.substr(0, scheme.find_last_not_of(')') + 1))
    if (c != ' ') name += c == '(' || c == ')' ? '-' : c;
  return escaped(name, "-+,=._");
}

// A level of folders for each axis of options, and below them the scheme and the seed: "variables=3/cope-p_max=16.0".
std::filesystem::path folder_of(const Grid& grid, const GridCell& cell, const std::vector<Axis>& axes) {
  std::filesystem::path folder = grid.folder;
  for (const Axis& axis : axes)
    if (!axis.inside_schemes()) folder /= fitting(axis.name + "=" + escaped(cell.place.at(axis.name), "-+,=._"));
  return folder / to_text(fitting(scheme_folder(cell.scheme)), ".", cell.seed);
}

// "flip_flop, cope, length 15"; nothing where only schemes and seeds differ.
std::string cell_name(const std::string& task, const GridCell& cell, const std::vector<Axis>& axes) {
  if (axes.empty()) return "";
  std::string name = task + ", " + cell.scheme;
  for (const Axis& axis : axes)
    if (!axis.inside_schemes()) name += to_text(", ", axis.name, " ", cell.place.at(axis.name));
  return name;
}

// An error that it meets names the cell, where there are several to tell apart.
template <class Question> void naming(const std::string& cell, const Question& question) {
  try {
    question();
  } catch (const InputError& error) {
    if (cell.empty()) throw;
    throw InputError(cell, ": ", error.what());
  }
}

// The cells of one seed: every value of every axis, and every scheme with them.
class Planner {
 public:
  explicit Planner(const GridRequest& request) : request_(request) {}

  std::vector<GridCell> cells() {
    for (const Axis& axis : request_.axes) require_scheme_of(axis);
    std::vector<GridCell> all;
    GridCell empty;
    empty.options = request_.settings;
    add(all, 0, empty);
    return all;
  }

 private:
  void require_scheme_of(const Axis& axis) const {
    const auto has = [&](const std::string& scheme) { return with_value(scheme, axis, axis.values[0]).has_value(); };
    if (axis.inside_schemes() && std::ranges::none_of(request_.schemes, has))
      throw InputError("--vary: ", axis.name, " given; ", axis.inside_schemes()->first,
          " in one of --schemes required; add it there");
  }

  // The options of train one after another, then schemes.
  void add(std::vector<GridCell>& all, std::size_t k, const GridCell& begun) const {
    if (k == request_.axes.size()) {
      for (const std::string& scheme : request_.schemes) add_scheme(all, 0, scheme, scheme, begun);
      return;
    }
    const Axis& axis = request_.axes[k];
    if (axis.inside_schemes()) return add(all, k + 1, begun);
    for (const std::string& value : axis.values) {
      GridCell cell = begun;
      cell.place[axis.name] = value;
      put_setting(cell.options, axis.name, value);
      add(all, k + 1, cell);
    }
  }

  // Its own options one after another; a scheme without one of them has one cell there.
  void add_scheme(std::vector<GridCell>& all, std::size_t k, const std::string& name, const std::string& scheme,
      const GridCell& begun) const {
    if (k == request_.axes.size()) {
      GridCell cell = begun;
      cell.scheme = scheme, cell.place["scheme"] = name;
      all.push_back(std::move(cell));
      return;
    }
    const Axis& axis = request_.axes[k];
    if (!axis.inside_schemes()) return add_scheme(all, k + 1, name, scheme, begun);
    GridCell cell = begun;
    for (const std::string& value : axis.values) {
      const auto varied = with_value(scheme, axis, value);
      cell.place[axis.name] = varied ? value : "-";
      add_scheme(all, k + 1, name, varied.value_or(scheme), cell);
      if (!varied) return;
    }
  }

  const GridRequest& request_;
};

// Of one step, all parts of it.
std::int64_t sequences_of(const Settings& values) {
  return whole_number(values, "batch") * whole_number(values, "accumulate");
}

// The batch that keeps steps x batch x length. InputError where it is no whole number, with the nearest lengths for
// which it is one.
std::int64_t batch_for(std::int64_t tokens, const Settings& values) {
  const std::int64_t length = whole_number(values, "length"),
                     each = whole_number(values, "steps") * whole_number(values, "accumulate");
  const auto fits = [&](std::int64_t other) { return other > 0 && tokens % (each * other) == 0; };
  if (fits(length)) return tokens / (each * length);
  std::int64_t below = length - 1, above = length + 1;
  while (below > 0 && !fits(below)) --below;
  while (above <= tokens / each && !fits(above)) ++above;
  throw InputError("--same-tokens: a batch of ", tokens, " / (", each, " x ", length,
      ") sequences would follow; a whole number required; the nearest lengths with one are ",
      below > 0 ? std::to_string(below) : "", below > 0 && fits(above) ? " and " : "",
      fits(above) ? std::to_string(above) : "");
}

// What the cells of a request are checked by.
class Checker {
 public:
  Checker(const GridRequest& request, const TrainCheck& check) : request_(request), check_(check) {}

  void check(std::vector<GridCell>& cells) {
    const std::optional<std::int64_t> tokens =
        request_.same_tokens ? std::optional(tokens_before_axes(cells.front())) : std::nullopt;
    for (GridCell& cell : cells) {
      naming(cell_name(request_.task, cell, request_.axes), [&] {
        cell.values = values_of(cell.options, cell.scheme);
        if (tokens) {
          put_setting(cell.options, "batch", std::to_string(batch_for(*tokens, cell.values)));
          cell.values = values_of(cell.options, cell.scheme);
        }
        cell.steps = whole_number(cell.values, "steps"), cell.sequences = sequences_of(cell.values);
        if (request_.task == "lm") cell.data = text_of(cell.options);
      });
    }
  }

 private:
  Settings values_of(const Settings& options, const std::string& scheme) const {
    std::vector<std::string> arguments = arguments_of(options);
    arguments.insert(arguments.end(), {"--scheme", scheme, "--quiet"});
    return check_(request_.task, arguments);
  }

  // Of what --set and the preset say, before axes change it: an axis whose option must be given, such as a text, gives
  // its first value.
  std::int64_t tokens_before_axes(const GridCell& first) const {
    Settings settings = request_.settings;
    for (const auto& [name, value] : first.options)
      if (!find_setting(settings, name) && name != "length" && name != "steps") put_setting(settings, name, value);
    const Settings values = values_of(settings, first.scheme);
    if (!find_setting(values, "length"))
      throw InputError("--same-tokens: given; a task with the option length required; ", request_.task, " has none");
    if (std::ranges::count(request_.axes, "batch", &Axis::name) > 0)
      throw InputError("--same-tokens: given, and --vary batch too; one of both required: the batch follows");
    return whole_number(values, "steps") * sequences_of(values) * whole_number(values, "length");
  }

  // Of a text its SHA-256; each with its options is read once.
  std::string text_of(const Settings& options) {
    std::vector<std::string> arguments = arguments_of(options);
    arguments.insert(arguments.end(), {"--quiet", "--out", request_.folder.string()});
    const auto [text, is_new] = texts_.try_emplace(arguments);
    if (is_new) text->second = data_of(request_.task, arguments);
    return text->second;
  }

  const GridRequest& request_;
  const TrainCheck& check_;
  std::map<std::vector<std::string>, std::string> texts_;
};

}  // namespace

Grid plan_grid(const GridRequest& request, const TrainCheck& check) {
  Grid grid{.task = request.task, .axes = {}, .cells = {}, .folder = request.folder};
  for (const Axis& axis : request.axes) grid.axes.push_back(axis.name);
  std::vector<GridCell> cells = Planner(request).cells();
  Checker(request, check).check(cells);
  std::map<Settings, std::unique_ptr<tasks::Task>> tasks_by_options;  // so that a file is read once
  for (int seed = 0; seed < request.seeds; ++seed) {
    for (const GridCell& cell : cells) {
      GridCell& added = grid.cells.emplace_back(cell);
      added.seed = seed, added.place["seed"] = std::to_string(seed);
      added.folder = folder_of(grid, added, request.axes);
      if (request.task == "lm") continue;
      std::unique_ptr<tasks::Task>& task = tasks_by_options[added.options];
      if (!task) task = task_with(request.task, added.options);
      for (const tasks::TestSet& set : task->test_sets()) added.sets.push_back(set.name);
      if (!task->hash_of_files().empty()) added.data = tasks::data_fingerprint(*task, static_cast<std::uint64_t>(seed));
    }
  }
  return grid;
}

std::unique_ptr<tasks::Task> task_with(const std::string& name, const Settings& options) {
  CommandLine line(name, "");
  const auto task = tasks::find_task(name).declare(line);  // owns what the options are written to
  std::vector<std::string> own;
  for (const auto& [option, value] : line.values())
    if (const std::string* given = find_setting(options, option)) own.insert(own.end(), {"--" + option, *given});
  return tasks::make_task(name, own);
}

}  // namespace whence

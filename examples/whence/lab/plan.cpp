#include "examples/whence/lab/plan.h"

#include <algorithm>
#include <map>

#include "examples/whence/cli/text.h"
#include "examples/whence/language/train_language.h"
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

Settings checked(const GridRequest& request, const Settings& options, const std::string& scheme) {
  std::vector<std::string> arguments = arguments_of(options);
  arguments.insert(arguments.end(), {"--scheme", scheme, "--quiet"});
  return request.check(arguments);
}

// Of one step, all parts of it.
std::int64_t sequences_of(const Settings& values) {
  return whole_number(values, "batch") * whole_number(values, "accumulate");
}

// The batch that keeps steps x batch x length, or what the nearest lengths are for which there is one.
class SameTokens {
 public:
  SameTokens(const GridRequest& request, const Settings& values) {
    if (!find_setting(values, "length"))
      throw InputError("--same-tokens: given; a task with the option length required; ", request.task, " has none");
    for (const Axis& axis : request.axes)
      if (axis.name == "batch")
        throw InputError("--same-tokens: given, and --vary batch too; one of both required: the batch follows");
    tokens_ = whole_number(values, "steps") * sequences_of(values) * whole_number(values, "length");
  }

  void set_batch(Settings& options, const Settings& values) const {
    const std::int64_t length = whole_number(values, "length"),
                       each = whole_number(values, "steps") * whole_number(values, "accumulate");
    const auto fits = [&](std::int64_t other) { return other > 0 && tokens_ % (each * other) == 0; };
    if (!fits(length)) {
      std::int64_t below = length - 1, above = length + 1;
      while (below > 0 && !fits(below)) --below;
      while (above <= tokens_ / each && !fits(above)) ++above;
      throw InputError("--same-tokens: a batch of ", tokens_, " / (", each, " x ", length,
          ") sequences would follow; a whole number required; the nearest lengths with one are ",
          below > 0 ? std::to_string(below) : "", below > 0 && fits(above) ? " and " : "",
          fits(above) ? std::to_string(above) : "");
    }
    put_setting(options, "batch", std::to_string(tokens_ / (each * length)));
  }

 private:
  std::int64_t tokens_ = 0;
};

// What --set and the preset say, before axes change it: an axis whose option must be given, such as a text, gives its
// first value.
Settings before_axes(const GridRequest& request, const GridCell& first) {
  Settings settings = request.settings;
  for (const auto& [name, value] : first.options)
    if (!find_setting(settings, name) && name != "length" && name != "steps") put_setting(settings, name, value);
  return settings;
}

// The texts that cells of lm read, each once, with the longest windows that are asked of it.
class Texts {
 public:
  void add(GridCell& cell, const std::string& name, const Settings& values) {
    std::string text;
    for (const char* option : {"data", "validation-data", "test-data", "field", "include", "exclude", "tokeniser",
             "blank-lines", "validation", "split-seed", "separate"})
      text += *find_setting(values, option) + '\n';
    Readers& readers = texts_[text];
    readers.all.push_back(&cell);
    const std::int64_t length = whole_number(values, "length");
    if (length > readers.longest) readers.longest = length, readers.name = name, readers.options = cell.options;
  }
  // Each cell learns what it will read.
  void check(const std::filesystem::path& folder) const {
    for (const auto& [text, readers] : texts_) {
      std::vector<std::string> arguments = arguments_of(readers.options);
      arguments.insert(arguments.end(), {"--quiet", "--out", folder.string()});
      std::string hash;
      naming(readers.name, [&] { hash = language::check_text(arguments); });
      for (GridCell* cell : readers.all) cell->data = hash;
    }
  }

 private:
  struct Readers {
    std::vector<GridCell*> all;
    std::int64_t longest = 0;
    std::string name;  // of the one with the longest windows, and its options
    Settings options;
  };
  std::map<std::string, Readers> texts_;
};

void check_cells(const GridRequest& request, std::vector<GridCell>& cells) {
  std::optional<SameTokens> same_tokens;
  if (request.same_tokens) {
    const GridCell& first = cells.front();
    same_tokens.emplace(request, checked(request, before_axes(request, first), first.scheme));
  }
  Texts texts;
  for (GridCell& cell : cells) {
    const std::string name = cell_name(request.task, cell, request.axes);
    naming(name, [&] {
      Settings values = checked(request, cell.options, cell.scheme);
      if (same_tokens) {
        same_tokens->set_batch(cell.options, values);
        values = checked(request, cell.options, cell.scheme);
      }
      cell.steps = whole_number(values, "steps"), cell.sequences = sequences_of(values);
      if (request.task == "lm") texts.add(cell, name, values);
    });
  }
  texts.check(request.folder);
}

}  // namespace

Grid plan_grid(const GridRequest& request) {
  Grid grid{.task = request.task, .axes = {}, .cells = {}, .folder = request.folder};
  for (const Axis& axis : request.axes) grid.axes.push_back(axis.name);
  std::vector<GridCell> cells = Planner(request).cells();
  check_cells(request, cells);
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

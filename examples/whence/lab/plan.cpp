// A grid before anything runs: its cells, each with its place, its options and its folder, all of them checked.
#include <algorithm>
#include <map>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/lab/grid.h"
#include "examples/whence/study/task_study.h"
#include "examples/whence/study/train_request.h"
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

// ---- Folders

// Everything but letters, digits and what no shell minds, as %2F.
std::string escaped(const std::string& text) {
  static constexpr char digits[] = "0123456789ABCDEF";
  static constexpr std::string_view also_plain = "-+,=._";
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
  return fitting(escaped(name));
}

// A level of folders for each axis of options, and below them the scheme and the seed: "variables=3/cope-p_max=16.0".
std::filesystem::path folder_of(const Grid& grid, const GridCell& cell) {
  std::filesystem::path folder = grid.folder;
  for (const Axis& axis : grid.axes)
    if (!axis.inside_schemes()) folder /= fitting(axis.name + "=" + escaped(cell.place.at(axis.name)));
  return folder / to_text(scheme_folder(cell.scheme), ".", cell.seed);
}

// ---- Cells

// In the place of each cell one for each of the values, as `put` makes it; none where that says no.
template <class Put> void split(std::vector<GridCell>& cells, const std::vector<std::string>& values, const Put& put) {
  std::vector<GridCell> parts;
  for (const GridCell& cell : cells)
    for (const std::string& value : values)
      if (GridCell part = cell; put(part, value)) parts.push_back(std::move(part));
  cells = std::move(parts);
}

// A scheme without the axis has one cell there.
bool put_inside(GridCell& cell, const Axis& axis, const std::string& value) {
  const auto varied = with_value(cell.scheme, axis, value);
  cell.place[axis.name] = varied ? value : "-";
  cell.scheme = varied.value_or(cell.scheme);
  return varied || value == axis.values[0];
}

// Those of one seed: the options of train one after another, then the schemes, then their own options.
std::vector<GridCell> cells_of(const Grid& grid) {
  std::vector<GridCell> cells(1);
  cells[0].task = grid.task, cells[0].options = grid.settings;
  for (const Axis& axis : grid.axes)
    if (!axis.inside_schemes())
      split(cells, axis.values, [&](GridCell& cell, const std::string& value) {
        cell.place[axis.name] = value;
        cell.name += to_text(", ", axis.name, " ", value);
        put_setting(cell.options, axis.name, value);
        return true;
      });
  split(cells, grid.schemes, [](GridCell& cell, const std::string& scheme) {
    cell.scheme = cell.place["scheme"] = scheme;
    return true;
  });
  for (const Axis& axis : grid.axes) {
    if (!axis.inside_schemes()) continue;
    split(cells, axis.values, [&](GridCell& cell, const auto& value) { return put_inside(cell, axis, value); });
    if (std::ranges::all_of(cells, [&](const GridCell& cell) { return cell.place.at(axis.name) == "-"; }))
      throw InputError("--vary: ", axis.name, " given; ", axis.inside_schemes()->first,
          " in one of --schemes required; add it there");
  }
  for (GridCell& cell : cells) cell.name = cell.scheme + cell.name;
  return cells;
}

Settings settings_of(const Grid& grid) {
  Settings settings;
  if (grid.preset == "mini") settings = parse_settings("preset", find_study(grid.task)->mini());
  for (const auto& [name, value] : grid.set) {
    const bool has_axis = std::ranges::count(grid.axes, name, &Axis::name) > 0;
    if (has_axis && !(grid.same_tokens && name == "length"))
      throw InputError("--set: ", name, "=", value, " given; options other than ", name, " required; --vary has it");
    put_setting(settings, name, value);
  }
  return settings;
}

// ---- Checks

Settings values_of(const std::string& task, const Settings& options, const std::string& scheme) {
  std::vector<std::string> words = arguments_of(options);
  words.insert(words.end(), {"--scheme", scheme, "--quiet"});
  return checked_train_options(task, words);
}

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

// Of what --set and the preset say, before axes change it: an axis whose option must be given, such as a text, gives
// its first value.
std::int64_t tokens_before_axes(const Grid& grid, const GridCell& first) {
  Settings settings = grid.settings;
  for (const auto& [name, value] : first.options)
    if (!find_setting(settings, name) && name != "length" && name != "steps") put_setting(settings, name, value);
  const Settings values = values_of(grid.task, settings, first.scheme);
  if (!find_setting(values, "length"))
    throw InputError("--same-tokens: given; a task with the option length required; ", grid.task, " has none");
  if (std::ranges::count(grid.axes, "batch", &Axis::name) > 0)
    throw InputError("--same-tokens: given, and --vary batch too; one of both required: the batch follows");
  return whole_number(values, "steps") * sequences_of(values) * whole_number(values, "length");
}

void check(const Grid& grid, std::vector<GridCell>& cells) {
  std::int64_t tokens = 0;
  if (grid.same_tokens) tokens = tokens_before_axes(grid, cells.front());
  std::map<std::vector<std::string>, std::string> texts;  // SHA-256 by options: each text is read once
  for (GridCell& cell : cells) {
    try {
      cell.values = values_of(grid.task, cell.options, cell.scheme);
      if (grid.same_tokens) {
        put_setting(cell.options, "batch", std::to_string(batch_for(tokens, cell.values)));
        cell.values = values_of(grid.task, cell.options, cell.scheme);
      }
      cell.steps = whole_number(cell.values, "steps"), cell.sequences = sequences_of(cell.values);
      if (grid.task != "lm") continue;
      std::vector<std::string> words = arguments_of(cell.options);
      words.insert(words.end(), {"--quiet", "--out", grid.folder.string()});
      const auto [text, is_new] = texts.try_emplace(words);
      if (is_new) text->second = data_of(grid.task, words);
      cell.data = text->second;
    } catch (const InputError& error) {
      if (grid.axes.empty()) throw;  // only schemes and seeds differ
      throw InputError(grid.task, ", ", cell.name, ": ", error.what());
    }
  }
}

}  // namespace

Grid planned(Grid grid) {
  grid.settings = settings_of(grid);
  std::vector<GridCell> cells = cells_of(grid);
  check(grid, cells);
  std::map<Settings, std::unique_ptr<tasks::Task>> tasks_by_options;  // so that a file is read once
  for (int seed = 0; seed < grid.seeds; ++seed) {
    for (const GridCell& cell : cells) {
      GridCell& added = grid.cells.emplace_back(cell);
      added.seed = seed, added.place["seed"] = std::to_string(seed);
      put_setting(added.values, "seed", std::to_string(seed));
      added.folder = folder_of(grid, added);
      if (grid.task == "lm") continue;
      std::unique_ptr<tasks::Task>& task = tasks_by_options[added.options];
      if (!task) task = task_with(grid.task, added.options);
      for (const tasks::TestSet& set : task->test_sets()) added.sets.push_back(set.name);
      if (!task->hash_of_files().empty()) added.data = data_fingerprint(*task, static_cast<std::uint64_t>(seed));
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

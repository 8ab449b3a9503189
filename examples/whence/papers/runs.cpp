#include "examples/whence/papers/runs.h"

#include <algorithm>
#include <functional>
#include <map>

#include "examples/whence/cli/text.h"
#include "examples/whence/papers/compare.h"
#include "nn/io/sha256.h"
#include "nn/scheme.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence::papers {
namespace {

std::string text_for(const PaperTable& table, const Asked& asked) {
  const bool code = table.grid.reads == Reads::code;
  const std::string& file = code ? asked.code : asked.text;
  if (!file.empty()) return file;
  throw InputError(code ? "--code" : "--data", ": nothing given; ", code ? "a folder of source code" : "a text file",
      " of yours required; ", table.name, " trains language models, and the papers' texts are not ours to give");
}

// The same name for the same run, whatever table asks for it.
void put_into_the_pool(Grid& grid, const Asked& asked) {
  for (GridCell& cell : grid.cells) {
    std::ranges::sort(cell.options);
    std::string all = asked.device;
    for (const std::string& word : arguments_of(cell.options)) all += word + '\n';
    cell.folder = asked.folder / grid.task / to_text(cell.folder.filename().string(), "-", sha256(all).substr(0, 8));
  }
}

// Of the grids those cells that the methods have, and of them those that have any.
void keep_methods(Runs& runs, const PaperTable& table, const Asked& asked) {
  if (asked.methods.empty()) return;
  std::vector<Method> kept;
  for (const std::string& name : asked.methods) {
    const auto method = std::ranges::find(table.methods, name, &Method::name);
    if (method == table.methods.end())
      throw InputError("--row: ", in_quotes(name), " given; one of those of ", table.name, " required");
    kept.push_back(*method);
  }
  for (Grid& grid : runs.grids)
    std::erase_if(grid.cells, [&](const GridCell& cell) {
      return std::ranges::none_of(kept, [&](const Method& method) { return is_of(cell, method); });
    });
  std::erase_if(runs.grids, [](const Grid& grid) { return grid.cells.empty(); });
  if (runs.grids.empty())
    throw InputError("--row: ", in_quotes(asked.methods[0]), " given; a row of preset ", asked.preset, " required");
}

Settings settings_of(const PaperTable& table, const Asked& asked) {
  Settings settings = parse_settings("set", asked.set);
  if (table.grid.reads == Reads::nothing) return settings;
  if (find_setting(settings, "data")) throw InputError("--set: data given; --data or --code required");
  put_setting(settings, "data", text_for(table, asked));
  return settings;
}

const std::vector<std::string>& schemes_at(const PaperTable& table, const Preset& preset) {
  return preset.schemes.empty() ? table.grid.schemes : preset.schemes;
}

GridRequest request_of(
    const PaperTable& table, const Preset& preset, const std::string& task, const Asked& asked, const Settings& more) {
  GridRequest request{.task = task,
      .schemes = schemes_at(table, preset),
      .seeds = asked.seeds == 0 ? preset.seeds : asked.seeds,
      .axes = parse_axes(table.grid.vary),
      .settings = preset.lab == "mini" ? mini_of(task) : Settings{},
      .same_tokens = table.grid.same_tokens,
      .folder = asked.folder};
  for (const Settings& given : {parse_settings("set", preset.set), more}) put_settings(request, given);
  return request;
}

}  // namespace

std::vector<std::string> tasks_at(const PaperTable& table, const Preset& preset) {
  return preset.tasks.empty() ? table.grid.tasks : preset.tasks;
}

std::string lab_command(const PaperTable& table, const Asked& asked) {
  const Preset& preset = find_preset(table, asked.preset);
  Settings settings = parse_settings("set", preset.set);
  for (const auto& [name, value] : parse_settings("set", asked.set)) put_setting(settings, name, value);
  if (table.grid.reads != Reads::nothing)
    put_setting(settings, "data", std::filesystem::path(text_for(table, asked)).filename().string());
  std::string set;
  for (const auto& [name, value] : settings) {
    const bool blank = value.find(' ') != std::string::npos;
    set += to_text(set.empty() ? "" : " ", name, "=", blank ? "\"" + value + "\"" : value);
  }
  std::vector<std::string> words = tasks_at(table, preset);
  const std::string schemes = whence::joined(schemes_at(table, preset), std::identity{}, ",");
  words.insert(words.end(), {"--schemes", schemes, "--preset", preset.lab});
  for (const std::string& axis : table.grid.vary) words.insert(words.end(), {"--vary", axis});
  if (table.grid.same_tokens) words.emplace_back("--same-tokens");
  if (!set.empty()) words.insert(words.end(), {"--set", set});
  words.insert(words.end(), {"--seeds", std::to_string(asked.seeds == 0 ? preset.seeds : asked.seeds)});
  return "whence lab " + shell_command(words);
}

Runs plan_runs(const PaperTable& table, const Asked& asked, const TrainCheck& check) {
  const Preset& preset = find_preset(table, asked.preset);
  const Settings more = settings_of(table, asked);
  Runs runs{.grids = {}, .lab = lab_command(table, asked)};
  for (const std::string& task : tasks_at(table, preset)) {
    runs.grids.push_back(plan_grid(request_of(table, preset, task, asked, more), check));
    put_into_the_pool(runs.grids.back(), asked);
  }
  require_cells(table, preset, runs.grids);
  keep_methods(runs, table, asked);
  return runs;
}

double operations(const Runs& runs, const SequenceCost& cost) {
  double sum = 0;
  std::map<std::vector<std::string>, double> of;  // seeds do not change it
  for (const Grid& grid : runs.grids) {
    for (const GridCell& cell : grid.cells) {
      std::vector<std::string> words = arguments_of(cell.options);
      words.insert(words.end(), {"--scheme", cell.scheme, "--quiet"});
      const auto [known, is_new] = of.try_emplace(words, 0);
      if (is_new) known->second = cost(grid.task, words);
      sum += known->second * static_cast<double>(cell.sequences) * static_cast<double>(cell.steps);
    }
  }
  return sum;
}

}  // namespace whence::papers

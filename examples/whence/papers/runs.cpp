#include "examples/whence/papers/runs.h"

#include <algorithm>
#include <map>

#include "examples/whence/cli/text.h"
#include "examples/whence/papers/compare.h"
#include "examples/whence/study/train_request.h"
#include "nn/io/sha256.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence::papers {
namespace {

std::string text_for(const PaperTable& table, const Asked& asked) {
  const bool code = table.reads == Reads::code;
  const std::string& file = code ? asked.code : asked.text;
  if (!file.empty()) return file;
  throw InputError(code ? "--code" : "--data", ": nothing given; ", code ? "a folder of source code" : "a text file",
      " of yours required; ", table.name, " trains language models, and the papers' texts are not ours to give");
}

// What is asked of `lab`, for each of the tasks alike.
Grid grid_of(const PaperTable& table, const Asked& asked) {
  const Preset& preset = find_preset(table, asked.preset);
  Grid grid;
  grid.schemes = preset.schemes.empty() ? table.schemes : preset.schemes;
  grid.seeds = asked.seeds == 0 ? preset.seeds : asked.seeds;
  grid.axes = parse_axes(table.vary);
  grid.preset = preset.lab;
  grid.set = parse_settings("set", preset.set);
  const Settings more = parse_settings("set", asked.set);
  for (const auto& [name, value] : more) put_setting(grid.set, name, value);
  grid.same_tokens = table.same_tokens;
  grid.folder = asked.folder;
  if (table.reads == Reads::nothing) return grid;
  if (find_setting(more, "data")) throw InputError("--set: data given; --data or --code required");
  put_setting(grid.set, "data", text_for(table, asked));
  return grid;
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
void keep_cells(std::vector<Grid>& grids, const std::vector<Method>& methods, const Asked& asked) {
  for (Grid& grid : grids)
    std::erase_if(grid.cells, [&](const GridCell& cell) {
      return std::ranges::none_of(methods, [&](const Method& method) { return is_of(cell, method); });
    });
  std::erase_if(grids, [](const Grid& grid) { return grid.cells.empty(); });
  if (grids.empty())
    throw InputError("--row: ", in_quotes(asked.rows[0]), " given; a row of preset ", asked.preset, " required");
}

}  // namespace

std::string lab_command(const PaperTable& table, const Asked& asked) {
  const Grid grid = grid_of(table, asked);
  std::string set;
  for (const auto& [name, value] : grid.set) {
    const bool file = name == "data" && table.reads != Reads::nothing;
    const std::string shown = file ? std::filesystem::path(value).filename().string() : value;
    const char* quote = shown.find(' ') == std::string::npos ? "" : "\"";
    set += to_text(set.empty() ? "" : " ", name, "=", quote, shown, quote);
  }
  std::vector<std::string> words = tasks_at(table, find_preset(table, asked.preset));
  words.insert(words.end(), {"--schemes", joined(grid.schemes, std::identity{}, ","), "--preset", grid.preset});
  for (const std::string& axis : table.vary) words.insert(words.end(), {"--vary", axis});
  if (grid.same_tokens) words.emplace_back("--same-tokens");
  if (!set.empty()) words.insert(words.end(), {"--set", set});
  words.insert(words.end(), {"--seeds", std::to_string(grid.seeds)});
  return "whence lab " + shell_command(words);
}

Runs plan_runs(const PaperTable& table, const Asked& asked) {
  const Preset& preset = find_preset(table, asked.preset);
  Runs runs{.grids = {}, .lab = lab_command(table, asked)};
  for (const std::string& task : tasks_at(table, preset)) {
    Grid grid = grid_of(table, asked);
    grid.task = task;
    put_into_the_pool(runs.grids.emplace_back(planned(std::move(grid))), asked);
  }
  require_cells(table, preset, runs.grids);
  if (!asked.rows.empty()) keep_cells(runs.grids, with_rows(table, asked.rows).methods, asked);
  return runs;
}

double operations(const Runs& runs) {
  double sum = 0;
  std::map<std::vector<std::string>, double> of;  // seeds do not change it
  for (const Grid& grid : runs.grids) {
    for (const GridCell& cell : grid.cells) {
      std::vector<std::string> words = arguments_of(cell.options);
      words.insert(words.end(), {"--scheme", cell.scheme, "--quiet"});
      const auto [known, is_new] = of.try_emplace(words, 0);
      if (is_new) known->second = operations_per_sequence(grid.task, words);
      sum += known->second * static_cast<double>(cell.sequences) * static_cast<double>(cell.steps);
    }
  }
  return sum;
}

}  // namespace whence::papers

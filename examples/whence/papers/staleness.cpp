#include "examples/whence/papers/staleness.h"

#include <algorithm>
#include <iostream>
#include <tuple>

#include "examples/whence/cli/text.h"
#include "examples/whence/lab/run.h"
#include "examples/whence/papers/runs.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "nn/io/sha256.h"
#include "tensor/cpu/instruction_set.h"
#include "tensor/error.h"

namespace whence::papers {
namespace {

namespace fs = std::filesystem;

// ---- Short trainings

// In the place of the user's file, long enough for the longest windows.
std::string write_text(const fs::path& folder) {
  std::string text;
  for (int line = 0; line < 20000; ++line) text += to_text("line ", line * line % 9973, " of a text\n");
  ensure_output_folder(folder);
  write_file((folder / "text.txt").string(), text);
  return (folder / "text.txt").string();
}

// The same options but for the sizes.
Settings made_short(Settings settings, const std::string& task) {
  for (const char* left_out : {"model", "accumulate", "validate-every", "save-every"})
    std::erase_if(settings, [&](const auto& setting) { return setting.first == left_out; });
  Settings sizes{{"steps", "2"}, {"batch", "2"}, {"dim", "32"}, {"layers", "2"}, {"heads", "4"}};
  if (task == "lm")
    sizes.insert(sizes.end(), {{"length", "32"}, {"last", "16"}, {"evaluate-to", "2"}, {"evaluation-windows", "1"},
                                  {"validation-windows", "1"}});
  else
    sizes.emplace_back("test-sequences", "2");
  for (const auto& [name, value] : sizes) put_setting(settings, name, value);
  std::ranges::sort(settings);
  return settings;
}

using Key = std::tuple<std::string, std::string, Settings>;  // task, scheme and options: what makes trainings equal

// Those of a table, by "TASK SCHEME".
std::map<std::string, Key> keys_of(const ShortTraining& training, const std::string& text, const fs::path& folder) {
  std::map<std::string, Key> keys;
  if (training.table->presets.empty()) return keys;
  const Asked asked{
      .preset = training.preset, .set = training.set, .text = text, .code = text, .seeds = 1, .folder = folder};
  for (const Grid& grid : plan_runs(*training.table, asked).grids)
    for (const GridCell& cell : grid.cells)
      keys.try_emplace(cell.task + " " + cell.scheme, cell.task, cell.scheme, made_short(cell.options, cell.task));
  return keys;
}

Grid grid_of(const Key& key, const fs::path& folder) {
  Grid grid;
  grid.task = std::get<0>(key), grid.schemes = {std::get<1>(key)}, grid.set = std::get<2>(key);
  grid.preset = "paper", grid.seeds = 1, grid.folder = folder;
  return planned(std::move(grid));
}

std::string bits_in(const GridCell& cell) {
  if (!cell.failure.empty()) throw Error("a short training of ", cell.scheme, " failed: ", cell.failure);
  std::string all;
  for (const char* file : {"weights.safetensors", "results.jsonl"}) all += read_file(cell.folder / file);
  return sha256(all).substr(0, 16);
}

// ---- Records

// Why a record would come out otherwise now; empty: it would not. `bits`: of this program.
std::string staleness(const Record& record, const PaperTable& table, const Bits& bits) {
  const std::string file = record.text.substr(0, record.text.find(','));
  const Asked asked{.preset = record.preset, .set = record.set, .text = file, .code = file, .seeds = record.seeds};
  if (!table.presets.empty() && lab_command(table, asked) != record.lab) return "its preset has other options now";
  std::string differ;
  for (const auto& [trained, now] : bits) {
    const auto then = record.bits.find(trained);
    const std::string was = then == record.bits.end() ? "nothing" : then->second;
    if (was != now) differ += to_text("\n  bits ", now, " ", trained, "; recorded ", was);
  }
  return differ.empty() ? "" : "short trainings give other bits:" + differ;
}

}  // namespace

std::vector<Bits> bits_of(const std::vector<ShortTraining>& trainings, const fs::path& folder, int jobs) {
  const std::string text = write_text(folder);
  std::vector<std::map<std::string, Key>> keys;  // of each training
  std::vector<Grid> grids;
  std::map<Key, std::size_t> grid_of_key;
  for (const ShortTraining& training : trainings)
    for (const auto& [name, key] : keys.emplace_back(keys_of(training, text, folder)))
      if (grid_of_key.try_emplace(key, grids.size()).second)
        grids.push_back(grid_of(key, folder / std::to_string(grids.size())));
  if (!grids.empty()) run_grids(grids, machine_for(grids, jobs, "cpu", true));
  std::vector<Bits> all(keys.size());
  for (std::size_t k = 0; k < keys.size(); ++k)
    for (const auto& [name, key] : keys[k]) all[k][name] = bits_in(grids[grid_of_key.at(key)].cells[0]);
  return all;
}

void print_staleness(const std::vector<Record>& records, const fs::path& folder, int jobs) {
  const std::string vectors = to_string(instruction_set());
  std::vector<ShortTraining> trainings;
  std::vector<const Record*> told;
  std::size_t stale = 0;
  const auto say = [&](const Record& record, const std::string& why) {
    if (why.empty()) return;
    ++stale;
    std::cout << "STALE: " << one_line(to_text(record.table, ", ", record.preset, ", of ", record.date.substr(0, 10)))
              << ": " << terminal_text(why) << '\n';
  };
  for (const Record& record : records) {
    const PaperTable* table = find_named(all_papers().tables, record.table);
    if (!table || !(table->presets.empty() || find_named(table->presets, record.preset))) {
      say(record, "there is no such table or preset now");
    } else if (record.vectors == vectors || table->presets.empty()) {
      trainings.push_back({table, record.preset, record.set});
      told.push_back(&record);
    }
  }
  if (fs::exists(folder)) remove_whole(folder.string());
  const std::vector<Bits> bits = bits_of(trainings, folder, jobs);
  remove_whole(folder.string());
  for (std::size_t k = 0; k < told.size(); ++k) say(*told[k], staleness(*told[k], *trainings[k].table, bits[k]));
  std::cout << records.size() << " results recorded, " << stale << " that this program would not give";
  if (const std::size_t other = records.size() - told.size(); other > 0)
    std::cout << ", " << other << " of which it cannot tell: they are not of " << vectors << " or not of its tables";
  std::cout << '\n';
}

}  // namespace whence::papers

#include "examples/whence/papers/short_trainings.h"

#include <algorithm>

#include "examples/whence/lab/run.h"
#include "examples/whence/papers/runs.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "nn/io/sha256.h"
#include "tensor/error.h"

namespace whence::papers {
namespace {

namespace fs = std::filesystem;

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

// Equal trainings have one place: by task and options, with the schemes.
using Key = std::pair<std::string, Settings>;

struct Place {
  Key request;
  std::string scheme;
};

// Those of one table, by "TASK SCHEME", added to what is to be run.
std::map<std::string, Place> places_of(const std::vector<Grid>& grids, std::map<Key, GridRequest>& requests) {
  std::map<std::string, Place> places;
  for (const Grid& grid : grids) {
    for (const GridCell& cell : grid.cells) {
      const Key key(grid.task, made_short(cell.options, grid.task));
      if (!places.try_emplace(grid.task + " " + cell.scheme, Place{key, cell.scheme}).second) continue;
      GridRequest& request = requests[key];
      if (std::ranges::count(request.schemes, cell.scheme) == 0) request.schemes.push_back(cell.scheme);
    }
  }
  return places;
}

std::string bits_in(const GridCell& cell) {
  if (!cell.failure.empty()) throw Error("a short training of ", cell.scheme, " failed: ", cell.failure);
  std::string all;
  for (const char* file : {"weights.safetensors", "results.jsonl"}) all += read_file(cell.folder / file);
  return sha256(all).substr(0, 16);
}

}  // namespace

std::vector<Bits> bits_of(
    const std::vector<ShortTraining>& trainings, const fs::path& folder, int jobs, const TrainCheck& check) {
  const std::string text = write_text(folder);
  std::map<Key, GridRequest> requests;
  std::vector<std::map<std::string, Place>> places;  // of each training
  for (const ShortTraining& training : trainings) {
    const Asked asked{.preset = training.preset,
        .set = training.set,
        .text = text,
        .code = text,
        .device = {},
        .methods = {},
        .seeds = 1,
        .folder = folder};
    const bool trained = !training.table->presets.empty();
    places.push_back(
        places_of(trained ? plan_runs(*training.table, asked, check).grids : std::vector<Grid>(), requests));
  }
  std::vector<Grid> grids;
  std::map<Key, std::size_t> grid_of;
  for (auto& [key, request] : requests) {
    request.task = key.first, request.settings = key.second, request.seeds = 1;
    request.folder = folder / std::to_string(grids.size());
    grid_of[key] = grids.size();
    grids.push_back(plan_grid(request, check));
  }
  if (!grids.empty()) run_grids(grids, machine_for(grids, jobs, "cpu", true));
  std::vector<Bits> all(places.size());
  for (std::size_t k = 0; k < places.size(); ++k)
    for (const auto& [name, place] : places[k])
      for (const GridCell& cell : grids[grid_of.at(place.request)].cells)
        if (cell.scheme == place.scheme) all[k][name] = bits_in(cell);
  return all;
}

}  // namespace whence::papers

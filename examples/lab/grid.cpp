// Runs of `train` as child processes: started, watched through their logs, stopped together.
#include "examples/lab/grid.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "examples/app/child.h"
#include "examples/app/code_hash.h"
#include "examples/app/interrupt.h"
#include "examples/app/progress.h"
#include "examples/app/run_files.h"
#include "examples/app/run_record.h"
#include "nn/io/checkpoint.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<std::string> command_of(const Grid& grid, const GridCell& cell) {
  std::vector<std::string> arguments = arguments_of(cell.options);
  arguments.insert(arguments.begin(), grid.task);
  arguments.insert(arguments.end(), {"--scheme", cell.scheme, "--seed", std::to_string(cell.seed)});
  return arguments;
}

// Written when a run begins, and again when it has ended; what it says is what the run is.
fs::path mark_of(const GridCell& cell) { return cell.folder / "lab_cell.json"; }

void write_mark(const Grid& grid, const GridCell& cell, bool done) {
  const json mark{{"arguments", command_of(grid, cell)}, {"done", done},
      {"code", cell.code.empty() ? code_hash() : cell.code}, {"processor_seconds", cell.processor_seconds}};
  write_file(mark_of(cell).string(), mark.dump() + "\n");
}

void refuse_another_text(const GridCell& cell) {
  if (cell.data.empty() || read_run_record(cell.folder / "run.json").data == cell.data) return;
  throw InputError("--out: ", cell.folder.string(),
      " holds a run on another text of the same name; the text that it was trained on, or another folder, required");
}

// Takes from the mark what it says of the run.
bool finished(const Grid& grid, GridCell& cell) {
  if (!fs::exists(mark_of(cell))) {
    for (const char* left : {"run.json", "weights.safetensors", "checkpoints"})
      if (fs::exists(cell.folder / left))
        throw InputError("--out: ", cell.folder.string(),
            " holds a run that no laboratory began; another folder required, or that one moved away");
    return false;
  }
  const json said = json::parse(read_file(mark_of(cell)), nullptr, false);
  if (said.is_discarded() || said.value("arguments", json::array()) != json(command_of(grid, cell))) {
    throw InputError("--out: ", cell.folder.string(),
        " holds a run with other options; the same options, or another folder, required");
  }
  cell.processor_seconds = said.value("processor_seconds", 0.0), cell.code = said.value("code", "");
  if (!said.value("done", false)) return false;
  refuse_another_text(cell);
  return true;
}

class Child {
 public:
  Child(const Grid& grid, const Machine& machine, GridCell& cell) : grid_(&grid), cell_(&cell) {
    ensure_output_folder(cell.folder);
    const bool begun = find_latest((cell.folder / "checkpoints").string()).has_value();
    if (!begun) cell.code.clear();
    write_mark(grid, cell, false);
    std::vector<std::string> arguments = command_of(grid, cell);
    arguments.insert(arguments.begin(), {machine.program.string(), "train"});
    arguments.insert(arguments.end(), {"--threads", std::to_string(machine.threads), "--device", machine.device});
    arguments.insert(arguments.end(), {"--out", cell.folder.string()});
    if (begun) arguments.emplace_back("--resume");
    process_ = start_child(std::move(arguments), log_of(cell), Errors::in_the_file);
  }

  const Grid& grid() const { return *grid_; }
  GridCell& cell() const { return *cell_; }
  void interrupt() const { kill(process_, SIGINT); }
  // The exit code once it has ended; -1 while it runs. Its time is in the mark then.
  int poll(bool wait) {
    int status = 0;
    rusage used{};
    if (wait4(process_, &status, wait ? 0 : WNOHANG, &used) == 0) return -1;
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    cell_->processor_seconds += seconds(used.ru_utime) + seconds(used.ru_stime);
    cell_->code = cell_->code.empty() || cell_->code == code_hash() ? code_hash() : "several";
    write_mark(*grid_, *cell_, exit_code_of(status) == 0);
    return exit_code_of(status);
  }

 private:
  const Grid* grid_;
  GridCell* cell_;
  pid_t process_ = 0;
};

std::vector<json> lines_of(const fs::path& path) {
  std::vector<json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    json parsed = json::parse(line, nullptr, false);
    if (parsed.is_object()) lines.push_back(std::move(parsed));  // the last line may be half written
  }
  return lines;
}

// A field of a line of results, and what it is called.
constexpr std::pair<const char*, const char*> measures[] = {{"token_error_percent", "token error %"},
    {"sequence_error_percent", "sequence error %"}, {"perplexity", "perplexity"}, {"bits_per_byte", "bits per byte"},
    {"delta_p", "Delta-P"}};

// Those of the fields whose names begin with `prefix`.
GridCell::Score score_of(const json& line, const std::string& prefix) {
  GridCell::Score score;
  for (const auto& [field, name] : measures)
    if (const auto found = line.find(prefix + field); found != line.end() && found->is_number())
      score.measures[name] = found->get<double>();
  return score;
}

std::string set_of(const json& line) {
  if (line.contains("test_set")) return line.value("test_set", std::string());
  return line.contains("length") ? to_text("length ", line.value("length", std::int64_t{0})) : "validation";
}

void read_results(GridCell& cell) {
  cell.curve.clear(), cell.validation.clear(), cell.validation_error.clear(), cell.scores.clear();
  for (const json& line : lines_of(cell.folder / "metrics.jsonl")) {
    const auto add = [&](const char* name, std::vector<LossPoint>& curve) {
      if (line.contains(name) && line[name].is_number())
        curve.push_back({line.value("step", std::int64_t{0}), line[name].get<double>()});
    };
    add("loss", cell.curve), add("validation_score", cell.validation);
    add("validation_token_error_percent", cell.validation_error);
    cell.seconds = std::max(cell.seconds, line.value("seconds", 0.0));
  }
  for (const json& line : lines_of(cell.folder / "results.jsonl")) {
    GridCell::Score score = score_of(line, "");
    for (const auto& [name, value] : line.items())
      if (name.starts_with("guess: ") && value.is_number()) score.guesses[name.substr(7)] = value.get<double>();
    cell.scores.emplace_back(set_of(line), std::move(score));
    if (auto test = score_of(line, "test_"); !test.measures.empty()) cell.scores.emplace_back("test", std::move(test));
  }
}

// The last line of a log, for an error.
std::string end_of(const std::string& log) {
  std::ifstream file(log);
  std::string last = "without a word";
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) last = line;
  return last;
}

std::int64_t all_steps(const std::vector<Grid>& grids) {
  std::int64_t steps = 0;
  for (const Grid& grid : grids)
    for (const GridCell& cell : grid.cells) steps += cell.steps;
  return steps;
}

// "rope, variables 3, seed 0"
std::string name_of(const Grid& grid, const GridCell& cell) {
  std::string name = cell.scheme;
  for (const std::string& axis : grid.axes)
    if (axis.find('.') == std::string::npos) name += to_text(", ", axis, " ", cell.place.at(axis));
  return to_text(name, ", seed ", cell.seed);
}

class Laboratory {
 public:
  Laboratory(std::vector<Grid>& grids, const Machine& machine)
      : grids_(grids),
        machine_(machine),
        progress_(grids.size() == 1 ? "lab " + grids[0].task : to_text("lab, ", grids.size(), " tasks"),
            all_steps(grids), 0, ProgressStyle::for_standard_error(machine.quiet), std::cerr) {
    for (const Grid& grid : grids) runs_ += grid.cells.size();
  }

  void run() {
    std::vector<std::pair<const Grid*, GridCell*>> waiting;
    for (Grid& grid : grids_) {
      for (GridCell& cell : grid.cells) {
        if (!finished(grid, cell)) {
          waiting.emplace_back(&grid, &cell);
          continue;
        }
        read_results(cell);
        take_as_done(cell);
      }
    }
    std::reverse(waiting.begin(), waiting.end());
    while (!waiting.empty() || !running_.empty()) {
      while (!waiting.empty() && static_cast<int>(running_.size()) < machine_.jobs) {
        running_.emplace_back(*waiting.back().first, machine_, *waiting.back().second);
        waiting.pop_back();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      if (interrupt_requested()) stop();
      collect();
      if (++looks_ % 10 == 0) show();  // it reads whole logs
    }
    progress_.finish();
  }

 private:
  void take_as_done(const GridCell& cell) { ++done_, steps_done_ += cell.steps; }

  // Children that have ended.
  void collect() {
    for (auto child = running_.begin(); child != running_.end();) {
      const int code = child->poll(false);
      if (code < 0) {
        ++child;
        continue;
      }
      GridCell& cell = child->cell();
      const Grid& grid = child->grid();
      child = running_.erase(child);
      if (code == 130 && interrupt_requested()) continue;  // the signal was for all of them
      take_as_done(cell);
      if (code != 0) {
        cell.scores.clear();
        cell.failure = to_text("exit code ", code, ": ", end_of(log_of(cell)));
        progress_.note(to_text(grid.task, ", ", name_of(grid, cell), ": failed with ", cell.failure));
        continue;
      }
      read_results(cell);
      progress_.note(to_text(grid.task, ", ", name_of(grid, cell), ": done, ", done_, " of ", runs_));
    }
  }

  void stop() {
    for (const Child& child : running_) child.interrupt();
    for (Child& child : running_) (void)child.poll(true);
    progress_.finish();
    throw Interrupted(
        to_text("stopped with ", done_, " of ", runs_, " runs done, the others saved; the same command goes on"));
  }

  void show() {
    std::int64_t steps = steps_done_;
    std::vector<std::pair<std::string, double>> figures;
    for (const Child& child : running_) {
      read_results(child.cell());
      const auto& curve = child.cell().curve;
      if (curve.empty()) continue;
      steps += curve.back().step;
      figures.emplace_back(to_text(child.cell().scheme, ".", child.cell().seed, " loss"), curve.back().loss);
    }
    progress_.update(steps, 0, figures);
  }

  std::vector<Grid>& grids_;
  const Machine& machine_;
  Progress progress_;
  std::vector<Child> running_;
  std::size_t runs_ = 0, done_ = 0;
  std::int64_t steps_done_ = 0;
  int looks_ = 0;
};

}  // namespace

std::string log_of(const GridCell& cell) { return (cell.folder / "train.log").string(); }

void run_grids(std::vector<Grid>& grids, const Machine& machine) {
  for (const Grid& grid : grids) ensure_output_folder(grid.folder);
  Laboratory(grids, machine).run();
}

}  // namespace whence

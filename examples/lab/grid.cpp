// Runs of `train` as child processes: started, watched through their logs, stopped together.
#include "examples/lab/grid.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "examples/app/interrupt.h"
#include "examples/app/progress.h"
#include "examples/app/run_files.h"
#include "nn/io/checkpoint.h"
#include "nn/io/files.h"
#include "tensor/error.h"

extern char** environ;

namespace whence {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// "cope(p_max=16) + rope" as a folder: "cope_p_max_16_rope".
std::string folder_name(const std::string& scheme) {
  std::string name;
  for (const char c : scheme) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '.';
    if (plain) name += c;
    if (!plain && !name.empty() && name.back() != '_') name += '_';
  }
  while (!name.empty() && name.back() == '_') name.pop_back();
  return name;
}

std::vector<std::string> arguments_of(const GridOptions& options, const GridCell& cell) {
  std::vector<std::string> arguments{options.task};
  arguments.insert(arguments.end(), options.train_options.begin(), options.train_options.end());
  for (const std::string& more :
      {std::string("--scheme"), cell.scheme, std::string("--seed"), std::to_string(cell.seed)})
    arguments.push_back(more);
  return arguments;
}

// Written when a run has ended well; what it says is what the run was.
fs::path mark_of(const GridCell& cell) { return cell.folder / "lab_cell.json"; }

bool finished(const GridOptions& options, const GridCell& cell) {
  if (!fs::exists(mark_of(cell))) return false;
  const json said = json::parse(read_file(mark_of(cell)), nullptr, false);
  if (said.is_discarded() || said.value("arguments", json::array()) != json(arguments_of(options, cell))) {
    throw InputError("--out: ", cell.folder.string(),
        " holds a run with other options; the same options, or another folder, required");
  }
  return true;
}

class Child {
 public:
  Child(const GridOptions& grid, const Machine& machine, GridCell& cell) : grid_(&grid), cell_(&cell) {
    ensure_output_folder(cell.folder);
    std::vector<std::string> arguments = arguments_of(grid, cell);
    arguments.insert(arguments.begin(), {machine.program.string(), "train"});
    arguments.insert(arguments.end(), {"--threads", std::to_string(machine.threads), "--device", machine.device});
    arguments.insert(arguments.end(), {"--out", cell.folder.string()});
    if (find_latest((cell.folder / "checkpoints").string())) arguments.push_back("--resume");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log().c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    const int failure = posix_spawn(&process_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failure)
      throw Error(machine.program.string(), " could not be started: ", std::generic_category().message(failure));
  }

  const GridOptions& grid() const { return *grid_; }
  GridCell& cell() const { return *cell_; }
  std::string log() const { return (cell_->folder / "train.log").string(); }
  void interrupt() const { kill(process_, SIGINT); }
  // The exit code once it has ended; -1 while it runs.
  int poll(bool wait) {
    int status = 0;
    if (waitpid(process_, &status, wait ? 0 : WNOHANG) == 0) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  const GridOptions* grid_;
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

void read_results(GridCell& cell) {
  cell.curve.clear(), cell.scores.clear();
  for (const json& line : lines_of(cell.folder / "metrics.jsonl")) {
    if (!line.contains("loss") || !line["loss"].is_number()) continue;
    cell.curve.push_back({line.value("step", std::int64_t{0}), line["loss"].get<double>()});
    cell.seconds = std::max(cell.seconds, line.value("seconds", 0.0));
  }
  for (const json& line : lines_of(cell.folder / "results.jsonl")) {
    GridCell::Score score{
        line.value("token_error_percent", std::nan("")), line.value("sequence_error_percent", std::nan("")), {}};
    for (const auto& [name, value] : line.items())
      if (name.starts_with("guess: ") && value.is_number()) score.guesses[name.substr(7)] = value.get<double>();
    cell.scores.emplace_back(line.value("test_set", std::string()), std::move(score));
  }
}

// The last lines of a log, for an error.
std::string end_of(const std::string& log) {
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) last = line;
  return last;
}

std::int64_t all_steps(const std::vector<GridOptions>& grids) {
  std::int64_t steps = 0;
  for (const GridOptions& grid : grids)
    steps += grid.steps * grid.seeds * static_cast<std::int64_t>(grid.schemes.size());
  return steps;
}

class Laboratory {
 public:
  Laboratory(const std::vector<GridOptions>& grids, const Machine& machine)
      : grids_(grids),
        machine_(machine),
        progress_(grids.size() == 1 ? "lab " + grids[0].task : to_text("lab, ", grids.size(), " tasks"),
            all_steps(grids), 0, ProgressStyle::for_standard_error(machine.quiet), std::cerr) {
    for (const GridOptions& grid : grids) {
      cells_.emplace_back();
      for (int seed = 0; seed < grid.seeds; ++seed) {
        for (const std::string& scheme : grid.schemes) {
          cells_.back().push_back({.scheme = scheme,
              .seed = seed,
              .folder = grid.folder / to_text(folder_name(scheme), ".", seed),
              .curve = {},
              .scores = {}});
        }
      }
      runs_ += cells_.back().size();
    }
  }

  std::vector<std::vector<GridCell>> run() {
    std::vector<std::pair<const GridOptions*, GridCell*>> waiting;
    for (std::size_t k = 0; k < grids_.size(); ++k) {
      for (GridCell& cell : cells_[k]) {
        if (!finished(grids_[k], cell)) {
          waiting.emplace_back(&grids_[k], &cell);
          continue;
        }
        read_results(cell);
        take_as_done(grids_[k]);
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
    return std::move(cells_);
  }

 private:
  void take_as_done(const GridOptions& grid) { ++done_, steps_done_ += grid.steps; }

  // Children that have ended.
  void collect() {
    for (auto child = running_.begin(); child != running_.end();) {
      const int code = child->poll(false);
      if (code < 0) {
        ++child;
        continue;
      }
      GridCell& cell = child->cell();
      const GridOptions& grid = child->grid();
      const std::string log = child->log();
      child = running_.erase(child);
      if (code != 0) {
        for (const Child& other : running_) other.interrupt();
        for (Child& other : running_) (void)other.poll(true);
        running_.clear();
        progress_.finish();
        throw Error(grid.task, " with ", cell.scheme, " and seed ", cell.seed, " ended with exit code ", code, ": ",
            end_of(log), "; all of it: ", log);
      }
      write_file(mark_of(cell).string(), json{{"arguments", arguments_of(grid, cell)}}.dump() + "\n");
      read_results(cell);
      take_as_done(grid);
      progress_.note(to_text(grid.task, ", ", cell.scheme, ", seed ", cell.seed, ": done, ", done_, " of ", runs_));
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

  const std::vector<GridOptions>& grids_;
  const Machine& machine_;
  Progress progress_;
  std::vector<std::vector<GridCell>> cells_;  // by grid
  std::vector<Child> running_;
  std::size_t runs_ = 0, done_ = 0;
  std::int64_t steps_done_ = 0;
  int looks_ = 0;
};

}  // namespace

std::vector<std::vector<GridCell>> run_grids(const std::vector<GridOptions>& grids, const Machine& machine) {
  for (const GridOptions& grid : grids) ensure_output_folder(grid.folder);
  return Laboratory(grids, machine).run();
}

}  // namespace whence

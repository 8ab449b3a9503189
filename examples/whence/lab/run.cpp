#include "examples/whence/lab/run.h"

#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <memory>
#include <set>
#include <thread>

#include "examples/whence/cli/child.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/lab/cell.h"
#include "examples/whence/machine/launch.h"
#include "examples/whence/run/run_files.h"
#include "tensor/error.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

namespace fs = std::filesystem;

void require_own_folders(const std::vector<Grid>& grids) {
  std::set<fs::path> folders;
  for (const Grid& grid : grids)
    for (const GridCell& cell : grid.cells)
      if (!folders.insert(cell.folder).second)
        throw InputError("--out: two runs would have one folder, ", cell.folder.string(), "; each run once required");
}

// "rope, variables 3, seed 0"
std::string name_of(const Grid& grid, const GridCell& cell) {
  std::string name = cell.scheme;
  for (const std::string& axis : grid.axes)
    if (axis.find('.') == std::string::npos) name += to_text(", ", axis, " ", cell.place.at(axis));
  return to_text(name, ", seed ", cell.seed);
}

// The last line of a log, for an error.
std::string end_of(const std::string& log) {
  std::ifstream file(log);
  std::string last = "without a word";
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) last = line;
  return last;
}

std::vector<std::string> words_with(
    const Machine& machine, const Grid& grid, const GridCell& cell, const std::string& program) {
  std::vector<std::string> words = train_words(grid, cell);
  words.insert(words.begin(), program);
  if (machine.threads > 0) words.insert(words.end(), {"--threads", std::to_string(machine.threads)});
  if (machine.device != "auto") words.insert(words.end(), {"--device", machine.device});
  return words;
}

struct Waiting {
  const Grid* grid;
  GridCell* cell;
};

// The cells that are not done; the others have their figures.
std::vector<Waiting> not_done(std::vector<Grid>& grids) {
  std::vector<Waiting> waiting;
  for (Grid& grid : grids)
    for (GridCell& cell : grid.cells)
      if (!read_if_done(grid, cell)) waiting.push_back({&grid, &cell});
  return waiting;
}

class Laboratory {
 public:
  Laboratory(std::vector<Grid>& grids, const Machine& machine)
      : machine_(machine),
        waiting_(not_done(grids)),
        progress_(grids.size() == 1 ? "lab " + grids[0].task : to_text("lab, ", grids.size(), " tasks"),
            steps_of(grids), machine.quiet) {
    for (const Grid& grid : grids) runs_ += grid.cells.size();
    done_ = runs_ - waiting_.size(), steps_done_ = steps_of(grids);
    for (const Waiting& each : waiting_) steps_done_ -= each.cell->steps;
  }

  void run() {
    constexpr int looks_to_show = 10;  // 2 seconds: it reads logs
    for (int looks = 0; !waiting_.empty() || !running_.empty(); ++looks) {
      while (!waiting_.empty() && std::ssize(running_) < machine_.jobs) start();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      if (interrupt_requested()) stop();
      collect();
      if (looks % looks_to_show == 0) show();
    }
    progress_.finish();
  }

 private:
  struct Running : Waiting {
    pid_t process;
  };

  static std::int64_t steps_of(const std::vector<Grid>& grids) {
    std::int64_t steps = 0;
    for (const Grid& grid : grids)
      for (const GridCell& cell : grid.cells) steps += cell.steps;
    return steps;
  }

  void start() {
    const Waiting next = waiting_.front();
    waiting_.erase(waiting_.begin());
    if (next.cell->failure.starts_with("damaged: "))
      progress_.note(to_text(next.cell->folder.string(), ": ", next.cell->failure, "; this run ends anew"));
    ensure_output_folder(next.cell->folder);
    // This very file for every run, even when another is built in its place.
    std::vector<std::string> words = words_with(machine_, *next.grid, *next.cell, "/proc/self/exe");
    running_.push_back({next, start_child(std::move(words), log_of(*next.cell), Errors::in_the_file)});
  }

  // Runs that have ended.
  void collect() {
    std::erase_if(running_, [&](const Running& run) {
      int status = 0;
      pid_t ended = 0;
      while ((ended = waitpid(run.process, &status, WNOHANG)) < 0 && errno == EINTR) continue;
      if (ended == 0) return false;
      const int code = exit_code_of(status);
      if (code == 130 && interrupt_requested()) return true;  // the signal was for all of them
      end(run, code);
      return true;
    });
  }

  void end(const Running& run, int code) {
    GridCell& cell = *run.cell;
    ++done_, steps_done_ += cell.steps;
    const std::string name = to_text(run.grid->task, ", ", name_of(*run.grid, cell));
    if (code != 0)
      cell.failure = to_text("exit code ", code, ": ", end_of(log_of(cell)));
    else
      (void)read_if_done(*run.grid, cell);
    cell.missing = false;
    if (cell.failure.empty())
      progress_.note(to_text(name, ": done, ", done_, " of ", runs_));
    else
      progress_.note(to_text(name, ": failed with ", cell.failure));
  }

  // SIGUSR1, not SIGINT: a scheduler's SIGTERM may have come to a run already, and the second of those ends it at once.
  void stop() {
    for (const Running& run : running_) kill(run.process, SIGUSR1);
    while (!running_.empty()) {
      collect();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    progress_.finish();
    throw Interrupted(
        to_text("stopped with ", done_, " of ", runs_, " runs done, the others saved; the same command goes on"));
  }

  void show() {
    std::int64_t steps = steps_done_;
    std::vector<std::pair<std::string, double>> figures;
    for (const Running& run : running_) {
      const LossPoint newest = newest_loss(*run.cell);
      if (newest.step == 0) continue;
      steps += newest.step;
      figures.emplace_back(to_text(run.cell->scheme, ".", run.cell->seed, " loss"), newest.loss);
    }
    progress_.update(steps, 0, figures);
  }

  const Machine& machine_;
  std::vector<Waiting> waiting_;  // in the order of cells
  Progress progress_;
  std::vector<Running> running_;
  std::size_t runs_ = 0, done_ = 0;
  std::int64_t steps_done_ = 0;
};

}  // namespace

void run_grids(std::vector<Grid>& grids, const Machine& machine) {
  require_own_folders(grids);
  std::set<fs::path> folders;
  for (const Grid& grid : grids) folders.insert(grid.folder);
  std::vector<std::unique_ptr<FolderLock>> locks;
  for (const fs::path& folder : folders) {
    ensure_output_folder(folder);
    locks.push_back(std::make_unique<FolderLock>(folder));
  }
  leave_launcher();  // this process may be a rank of one; its runs are not
  Laboratory(grids, machine).run();
}

Machine machine_for(const std::vector<Grid>& grids, int jobs, const std::string& device, bool quiet) {
  std::size_t runs = 0;
  for (const Grid& grid : grids) runs += grid.cells.size();
  const int at_a_time = static_cast<int>(std::min(static_cast<std::size_t>(jobs), runs));
  return {.jobs = at_a_time, .threads = std::max(1, threads() / at_a_time), .device = device, .quiet = quiet};
}

int say_failures(const std::vector<Grid>& grids, const std::string& command) {
  std::size_t failed = 0;
  for (const Grid& grid : grids) {
    for (const GridCell& cell : grid.cells) {
      if (cell.failure.empty() || cell.missing) continue;
      std::cerr << "failed: " << cell.folder.string() << ": " << cell.failure << "; all of it: " << log_of(cell)
                << '\n';
      ++failed;
    }
  }
  if (failed > 0) std::cerr << command << ": " << failed << " runs failed; the same command tries them again\n";
  return failed > 0 ? 1 : 0;
}

void collect_grids(std::vector<Grid>& grids) {
  for (const Grid& grid : grids)
    if (!fs::exists(grid.folder))
      throw InputError("--out: ", grid.folder.string(), " not found; the folder of a grid that was begun required");
  for (const Waiting& each : not_done(grids))
    std::cerr << "missing: " << each.cell->folder.string() << ": " << message_line(each.cell->failure) << '\n';
}

std::vector<std::string> planned_lines(std::vector<Grid>& grids, const Machine& machine) {
  require_own_folders(grids);
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  std::vector<std::string> lines;
  for (const Waiting& each : not_done(grids)) {
    const std::vector<std::string> words = words_with(machine, *each.grid, *each.cell, program);
    for (const std::string& word : words)
      if (word.find_first_of("\n\r") != std::string::npos)
        throw InputError("--plan: ", in_quotes(word), " given; names without line ends required: a run is a line");
    lines.push_back(shell_command(words));
  }
  return lines;
}

}  // namespace whence

// Runs of `train` as child processes: started, watched through their logs, stopped together.
#include "examples/lab/grid.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <set>
#include <system_error>
#include <thread>

#include "examples/app/child.h"
#include "examples/app/code_hash.h"
#include "examples/app/interrupt.h"
#include "examples/app/progress.h"
#include "examples/app/run_files.h"
#include "examples/app/run_record.h"
#include "examples/app/text.h"
#include "examples/lab/run_mark.h"
#include "nn/io/checkpoint.h"
#include "tensor/error.h"

namespace whence {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> command_of(const Grid& grid, const GridCell& cell) {
  std::vector<std::string> arguments = arguments_of(cell.options);
  arguments.insert(arguments.begin(), grid.task);
  arguments.insert(arguments.end(), {"--scheme", cell.scheme, "--seed", std::to_string(cell.seed)});
  return arguments;
}

// Written when a run begins, and again when it has ended; what it says is what the run is.
RunMark mark_of(const Grid& grid, const GridCell& cell, std::map<std::string, std::string> hashes = {}) {
  return {.arguments = command_of(grid, cell),
      .code = cell.code.empty() ? code_hash() : cell.code,
      .processor_seconds = cell.processor_seconds,
      .done = !hashes.empty(),
      .hashes = std::move(hashes)};
}

void refuse_another_text(const GridCell& cell) {
  const fs::path record = cell.folder / "run.json";
  if (cell.data.empty() || read_run_record(record).data == cell.data) return;
  throw DoesNotFit("--out: ", record.string(),
      " is of a run on another text of the same name; the text that it was trained on, or another folder, required");
}

void refuse_foreign_run(const GridCell& cell) {
  for (const char* left : {"run.json", "weights.safetensors", "checkpoints"})
    if (fs::exists(cell.folder / left))
      throw InputError("--out: ", cell.folder.string(),
          " holds a run that no laboratory began; another folder required, or that one moved away");
}

enum class Finished { not_begun, no, yes, before_hashes };

// Takes from the mark what it says of the run, and the figures of one that has ended. InputError where they are
// damaged; DoesNotFit where they are another run's.
Finished finished(const Grid& grid, GridCell& cell) {
  const auto mark = read_mark(cell.folder);
  if (!mark) return Finished::not_begun;
  if (mark->arguments != command_of(grid, cell)) {
    throw DoesNotFit("--out: ", cell.folder.string(),
        " holds a run with other options; the same options, or another folder, required");
  }
  cell.processor_seconds = mark->processor_seconds, cell.code = mark->code;
  if (!mark->done) return Finished::no;
  require_unchanged(cell.folder, mark->hashes);
  refuse_another_text(cell);
  read_figures(cell);
  return mark->hashes.empty() ? Finished::before_hashes : Finished::yes;
}

// The last line of a log, for an error.
std::string end_of(const std::string& log) {
  std::ifstream file(log);
  std::string last = "without a word";
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) last = line;
  return last;
}

class Child {
 public:
  Child(const Grid& grid, const Machine& machine, GridCell& cell) : grid_(&grid), cell_(&cell) {
    ensure_output_folder(cell.folder);
    const bool begun = find_latest((cell.folder / "checkpoints").string()).has_value();
    if (!begun) cell.code.clear();
    write_mark(cell.folder, mark_of(grid, cell));
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
  // The exit code once it has ended; -1 while it runs. Its figures or its failure are in the cell then, and its time in
  // the mark.
  int poll(bool wait) {
    int status = 0;
    rusage used{};
    pid_t ended = 0;
    while ((ended = wait4(process_, &status, wait ? 0 : WNOHANG, &used)) < 0 && errno == EINTR) continue;
    if (ended == 0) return -1;
    if (ended < 0) throw SystemError("a run cannot be waited for: ", std::generic_category().message(errno));
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    cell_->processor_seconds += seconds(used.ru_utime) + seconds(used.ru_stime);
    cell_->code = cell_->code.empty() || cell_->code == code_hash() ? code_hash() : "several";
    const int code = exit_code_of(status);
    std::map<std::string, std::string> hashes;
    try {
      if (code == 0) {
        read_figures(*cell_);
        hashes = hashes_of(cell_->folder);
      }
    } catch (const Error& error) { cell_->failure = error.what(); }
    if (code != 0) cell_->failure = to_text("exit code ", code, ": ", end_of(log_of(*cell_)));
    write_mark(cell_->folder, mark_of(*grid_, *cell_, std::move(hashes)));
    return code;
  }

 private:
  const Grid* grid_;
  GridCell* cell_;
  pid_t process_ = 0;
};

constexpr double seconds_to_die = 10;  // for runs whose laboratory was killed

void require_own_folders(const std::vector<Grid>& grids) {
  std::set<fs::path> folders;
  for (const Grid& grid : grids)
    for (const GridCell& cell : grid.cells)
      if (!folders.insert(cell.folder).second)
        throw InputError("--out: two runs would have one folder, ", cell.folder.string(), "; each run once required");
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
    for (Grid& grid : grids_)
      for (GridCell& cell : grid.cells) {
        if (interrupt_requested()) stop();  // the files of finished runs may be many
        if (!take_finished(grid, cell)) waiting.emplace_back(&grid, &cell);
      }
    refuse_damaged();
    if (before_hashes_ > 0)
      std::cerr << "note: " << before_hashes_ << " of " << runs_
                << " runs were written before there were checksums: their results are read strictly, and not proved\n";
    std::reverse(waiting.begin(), waiting.end());
    while (!waiting.empty() || !running_.empty()) {
      while (!waiting.empty() && static_cast<int>(running_.size()) < machine_.jobs) {
        wait_for_the_dying(*waiting.back().second);
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

  bool take_finished(const Grid& grid, GridCell& cell) {
    Finished state = Finished::yes;
    try {
      state = finished(grid, cell);
    } catch (const DoesNotFit&) { throw; } catch (const InputError& error) {
      take_as_damaged(cell, error.what());
    }
    if (state == Finished::not_begun) refuse_foreign_run(cell);
    if (state == Finished::not_begun || state == Finished::no) return false;
    before_hashes_ += state == Finished::before_hashes;
    take_as_done(cell);
    return true;
  }

  void take_as_damaged(GridCell& cell, const std::string& why) {
    cell.damaged = true, cell.failure = "damaged, not counted: " + why;
    if (machine_.accept_damaged)
      std::cerr << "warning: " << cell.folder.string() << " is " << cell.failure << std::endl;
    else
      damaged_.push_back(why);
  }

  // In one line; where that has no room for all of them, each has its own before it.
  void refuse_damaged() const {
    if (damaged_.empty()) return;
    const bool few = damaged_.size() <= 2;
    std::string list = few ? "damaged: " + damaged_[0] : to_text(damaged_.size(), " runs are damaged, listed above");
    if (damaged_.size() == 2) list += "; " + damaged_[1];
    if (!few)
      for (const std::string& each : damaged_) std::cerr << "damaged: " << message_line(each) << '\n';
    throw FileError(list,
        "; nothing is trained: remove these runs' folders to train them anew, or go on without them with "
        "--accept-damaged");
  }

  // The runs of a laboratory that was killed die with it, but may take a moment to leave their locks.
  void wait_for_the_dying(const GridCell& cell) const {
    const int lock = open((cell.folder / "checkpoints/lock").c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (lock < 0) return;
    while (flock(lock, LOCK_EX | LOCK_NB) != 0 && steady_seconds() < dead_by_ && !interrupt_requested())
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    close(lock);
  }

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
      if (!cell.failure.empty()) {
        progress_.note(to_text(grid.task, ", ", name_of(grid, cell), ": failed with ", cell.failure));
        continue;
      }
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
      read_curves_so_far(child.cell());
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
  std::size_t runs_ = 0, done_ = 0, before_hashes_ = 0;
  std::vector<std::string> damaged_;  // why each is
  const double dead_by_ = steady_seconds() + seconds_to_die;
  std::int64_t steps_done_ = 0;
  int looks_ = 0;
};

}  // namespace

std::string log_of(const GridCell& cell) { return (cell.folder / "train.log").string(); }

void run_grids(std::vector<Grid>& grids, const Machine& machine) {
  require_own_folders(grids);
  for (const Grid& grid : grids) ensure_output_folder(grid.folder);
  Laboratory(grids, machine).run();
}

}  // namespace whence

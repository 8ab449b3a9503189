// The runs of a grid: claimed, started, watched through their logs, stopped together.
#include "examples/whence/lab/grid.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <set>
#include <system_error>
#include <thread>

#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/lab/cell_run.h"
#include "examples/whence/lab/run_mark.h"
#include "examples/whence/machine/launch.h"
#include "examples/whence/run/run_files.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

namespace fs = std::filesystem;

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

// What a folder is on this machine: another one appears in its place when what was mounted there goes away.
std::pair<dev_t, ino_t> identity_of(const fs::path& folder) {
  struct stat found {};
  if (::stat(folder.c_str(), &found) != 0)
    throw SystemError("--out: ", folder.string(), " cannot be reached: ", std::generic_category().message(errno),
        "; the same command goes on when it is there again");
  return {found.st_dev, found.st_ino};
}

class Laboratory {
 public:
  Laboratory(std::vector<Grid>& grids, const Machine& machine)
      : grids_(grids),
        machine_(machine),
        watch_(machine.dead_after),
        progress_(grids.size() == 1 ? "lab " + grids[0].task : to_text("lab, ", grids.size(), " tasks"),
            all_steps(grids), 0, ProgressStyle::for_standard_error(machine.quiet), std::cerr) {
    for (const Grid& grid : grids)
      runs_ += grid.cells.size(), folders_.emplace_back(grid.folder, identity_of(grid.folder));
  }

  void run() {
    read_what_is_done();
    while (!waiting_.empty() || !running_.empty()) {
      if (looks_ % looks_to_beat == 0) beat();
      if (looks_ % looks_to_beat == 0 || freed_) start();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      if (interrupt_requested()) stop();
      collect();
      if (++looks_ % looks_to_beat == 0) show();  // it reads whole logs
    }
    progress_.finish();
  }

  // The cells of which nothing is known to be done.
  struct Waiting {
    const Grid* grid;
    GridCell* cell;
    int claims_before;  // when this process began: a failure since then is another worker's, and counts
  };
  const std::vector<Waiting>& read_what_is_done() {
    std::int64_t number = 0;
    for (Grid& grid : grids_)
      for (GridCell& cell : grid.cells) {
        if (interrupt_requested()) stop();  // the files of finished runs may be many
        if (machine_.only.value_or(number) != number++) continue;
        if (!take_finished(grid, cell)) waiting_.push_back({&grid, &cell, Claim::standing(cell.folder).number});
      }
    refuse_damaged();
    if (before_hashes_ > 0)
      std::cerr << "note: " << before_hashes_ << " of " << runs_
                << " runs were written before there were checksums: their results are read strictly, and not proved\n";
    return waiting_;
  }

 private:
  static constexpr int looks_to_beat = 10;  // 2 seconds

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

  // A run holds its checkpoints' lock. That of a worker that was killed dies with it, but may take a moment; that of
  // one that is frozen goes on.
  bool still_runs(const GridCell& cell, const Claim::Standing& seen) const {
    const int lock = open((cell.folder / "checkpoints/lock").c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (lock < 0) return false;
    const bool held = flock(lock, LOCK_EX | LOCK_NB) != 0;
    close(lock);
    return held && (seen.state == "held" || steady_seconds() < dead_by_);
  }

  // As many as there is room for, of those that nobody runs.
  void start() {
    freed_ = false, elsewhere_.clear();
    for (auto next = waiting_.begin(); next != waiting_.end();) {
      const auto [grid, cell, claims_before] = *next;
      const Claim::Standing seen = Claim::standing(cell->folder);
      if (seen.number > claims_before && seen.state.starts_with("failed: ")) {
        cell->failure = seen.state.substr(8);
        take_as_done(*cell);
        next = waiting_.erase(next);
        continue;
      }
      if (!watch_.abandoned(cell->folder, seen) || still_runs(*cell, seen)) {
        elsewhere_.insert(seen.owner);
        ++next;
        continue;
      }
      if (static_cast<int>(running_.size()) >= machine_.jobs) break;
      ensure_output_folder(cell->folder);
      std::optional<Claim> claim = Claim::take(cell->folder, seen);
      if (!claim) {  // another was quicker
        ++next;
        continue;
      }
      if (take_finished(*grid, *cell))
        Claim::remove_all(cell->folder);  // done by another since it was last looked at
      else
        running_.emplace_back(*grid, machine_, *cell, std::move(*claim));
      next = waiting_.erase(next);
    }
    if (running_.empty() && !elsewhere_.empty() && said_ != elsewhere_) {
      progress_.note(to_text("the ", waiting_.size(), " runs that are left are those of ", joined(elsewhere_)));
      said_ = elsewhere_;
    }
  }

  void leave_to_another(const CellRun& run) {
    GridCell& cell = run.cell();
    progress_.note(to_text(cell.folder.string(),
        ": another worker took it over, as this one gave no sign of life for its --dead-after; left to it"));
    waiting_.push_back({&run.grid(), &cell, Claim::standing(cell.folder).number});
  }

  // Says that this worker lives; finds out that it has lost a cell while it was frozen, or its folder.
  void beat() {
    try {
      for (const auto& [folder, identity] : folders_)
        if (identity_of(folder) != identity)
          throw SystemError("--out: ", folder.string(),
              " is another folder than at the start: unmounted, or put in its place; the same command goes on when it "
              "is back");
      for (auto run = running_.begin(); run != running_.end();) {
        if (run->beat()) {
          ++run;
          continue;
        }
        run->abandon();
        leave_to_another(*run);
        run = running_.erase(run);
      }
    } catch (const SystemError&) {
      for (CellRun& run : running_) run.abandon();  // with nothing to write to; the last checkpoint is whole
      running_.clear();
      progress_.finish();
      throw;
    }
  }

  // Runs that have ended.
  void collect() {
    for (auto run = running_.begin(); run != running_.end();) {
      const int code = run->poll(interrupt_requested());
      if (code < 0) {
        ++run;
        continue;
      }
      GridCell& cell = run->cell();
      const Grid& grid = run->grid();
      const bool lost = run->lost();
      if (lost) leave_to_another(*run);
      run = running_.erase(run);
      freed_ = true;
      if (lost) continue;
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
    for (const CellRun& run : running_) run.interrupt();
    for (int looks = 1; !running_.empty(); ++looks) {  // saving may take longer than others wait for a sign of life
      collect();
      if (looks % (10 * looks_to_beat) == 0) beat();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    progress_.finish();
    throw Interrupted(
        to_text("stopped with ", done_, " of ", runs_, " runs done, the others saved; the same command goes on"));
  }

  void show() {
    std::int64_t steps = steps_done_;
    std::vector<std::pair<std::string, double>> figures;
    for (const CellRun& run : running_) {
      read_curves_so_far(run.cell());
      const auto& curve = run.cell().curve;
      if (curve.empty()) continue;
      steps += curve.back().step;
      figures.emplace_back(to_text(run.cell().scheme, ".", run.cell().seed, " loss"), curve.back().loss);
    }
    progress_.update(steps, 0, figures);
  }

  std::vector<Grid>& grids_;
  const Machine& machine_;
  ClaimWatch watch_;
  Progress progress_;
  std::vector<std::pair<fs::path, std::pair<dev_t, ino_t>>> folders_;
  std::vector<Waiting> waiting_;  // in the order of cells
  std::vector<CellRun> running_;
  std::set<std::string> elsewhere_, said_;  // who runs cells that this process waits for
  std::size_t runs_ = 0, done_ = 0, before_hashes_ = 0;
  std::vector<std::string> damaged_;  // why each is
  const double dead_by_ = steady_seconds() + seconds_to_die;
  std::int64_t steps_done_ = 0;
  int looks_ = 0;
  bool freed_ = false;  // there is room for another run
};

// Results of a run that nobody has ended here, if it wrote them.
bool read_unproved(GridCell& cell) {
  try {
    read_figures(cell);
    return fs::exists(cell.folder / "weights.safetensors");
  } catch (const InputError&) { return false; }
}

}  // namespace

std::string log_of(const GridCell& cell) { return (cell.folder / "train.log").string(); }

void run_grids(std::vector<Grid>& grids, const Machine& machine) {
  require_own_folders(grids);
  for (const Grid& grid : grids) ensure_output_folder(grid.folder);
  // Workers may be ranks of a launcher's; what they run is not.
  leave_launcher();
  Laboratory(grids, machine).run();
}

void collect_grids(std::vector<Grid>& grids, const Machine& machine) {
  for (const Grid& grid : grids)
    if (!fs::exists(grid.folder))
      throw InputError("--out: ", grid.folder.string(), " not found; the folder of a grid that was begun required");
  std::size_t unproved = 0;
  Laboratory laboratory(grids, machine);
  for (const auto& [grid, cell, claims] : laboratory.read_what_is_done()) {
    const Claim::Standing seen = Claim::standing(cell->folder);
    const bool lives = seen.number > 0 && seen.state == "held" && !seen.ended;
    if (!lives && seen.state.starts_with("failed: ")) {
      cell->failure = seen.state.substr(8);
    } else if (!lives && read_unproved(*cell)) {
      ++unproved;
    } else {
      cell->missing = true;
      cell->failure = lives ? "run by " + seen.owner : has_checkpoint(*cell) ? "begun, and run by nobody" : "not begun";
      std::cerr << "missing: " << cell->folder.string() << ": " << cell->failure << '\n';
    }
  }
  if (unproved > 0)
    std::cerr
        << "note: " << unproved
        << " runs were not ended by a laboratory: their results are read strictly, and not proved; without --collect "
           "they are tested again\n";
}

std::vector<std::string> planned_commands(
    std::vector<Grid>& grids, const Machine& machine, const std::string& program) {
  require_own_folders(grids);
  for (const Grid& grid : grids) ensure_output_folder(grid.folder);
  std::vector<std::string> lines;
  Laboratory laboratory(grids, machine);
  for (const auto& [grid, cell, claims] : laboratory.read_what_is_done()) {
    ensure_output_folder(cell->folder);
    if (!read_mark(cell->folder)) mark_as_begun(*grid, *cell);
    std::vector<std::string> words = train_words(*grid, *cell, program);
    if (machine.device != "auto") words.insert(words.end(), {"--device", machine.device});
    words.insert(words.end(), {"--out", cell->folder.string()});
    if (has_checkpoint(*cell)) words.emplace_back("--resume");
    lines.push_back(shell_command(words));
  }
  return lines;
}

}  // namespace whence

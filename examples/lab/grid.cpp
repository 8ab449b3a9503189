// Runs of `train` as child processes: started, watched through their logs, stopped together.
#include "examples/lab/grid.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
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
#include "examples/lab/claim.h"
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

std::vector<std::string> train_words(const Grid& grid, const GridCell& cell, const std::string& program) {
  std::vector<std::string> words = command_of(grid, cell);
  words.insert(words.begin(), {program, "train"});
  return words;
}

bool has_checkpoint(const GridCell& cell) { return find_latest((cell.folder / "checkpoints").string()).has_value(); }

class Child {
 public:
  Child(const Grid& grid, const Machine& machine, GridCell& cell, Claim claim)
      : grid_(&grid), cell_(&cell), claim_(std::move(claim)) {
    const bool begun = has_checkpoint(cell);
    if (!begun) cell.code.clear();
    write_mark(cell.folder, mark_of(grid, cell));
    std::vector<std::string> arguments = train_words(grid, cell, machine.program.string());
    arguments.insert(arguments.end(), {"--threads", std::to_string(machine.threads), "--device", machine.device});
    arguments.insert(arguments.end(), {"--out", cell.folder.string()});
    if (begun) arguments.emplace_back("--resume");
    process_ = start_child(std::move(arguments), log_of(cell), Errors::in_the_file);
  }

  const Grid& grid() const { return *grid_; }
  GridCell& cell() const { return *cell_; }
  // Not SIGINT: a scheduler's SIGTERM may have come to it already, and the second of those ends it at once.
  void interrupt() const { kill(process_, SIGUSR1); }
  [[nodiscard]] bool beat() { return claim_.beat(); }
  // Another has the cell: nothing of this run may be written any more.
  void abandon() {
    kill(process_, SIGKILL);
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) continue;
  }

  // The exit code once it has ended; -1 while it runs. Its figures or its failure are in the cell then, its time in the
  // mark, and the claim is given back: its failure too, unless it was interrupted by `asked`.
  int poll(bool asked) {
    int status = 0;
    rusage used{};
    pid_t ended = 0;
    while ((ended = wait4(process_, &status, WNOHANG, &used)) < 0 && errno == EINTR) continue;
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
    const bool done = !hashes.empty();
    write_mark(cell_->folder, mark_of(*grid_, *cell_, std::move(hashes)));
    if (done)
      Claim::remove_all(cell_->folder);
    else
      claim_.give_back(code == 130 && asked ? "" : cell_->failure);
    return code;
  }

 private:
  const Grid* grid_;
  GridCell* cell_;
  Claim claim_;
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
      std::string who;
      for (const std::string& owner : elsewhere_) who += (who.empty() ? "" : ", ") + owner;
      progress_.note(to_text("the ", waiting_.size(), " runs that are left are those of ", who));
      said_ = elsewhere_;
    }
  }

  // Says that this worker lives; finds out that it has lost a cell while it was frozen, or its folder.
  void beat() {
    try {
      for (const auto& [folder, identity] : folders_)
        if (identity_of(folder) != identity)
          throw SystemError("--out: ", folder.string(),
              " is another folder than at the start: unmounted, or put in its place; the same command goes on when it "
              "is back");
      for (auto child = running_.begin(); child != running_.end();) {
        if (child->beat()) {
          ++child;
          continue;
        }
        child->abandon();
        progress_.note(to_text(child->cell().folder.string(),
            ": another worker took it over, as this one gave no sign of life for its --dead-after; left to it"));
        waiting_.push_back({&child->grid(), &child->cell(), Claim::standing(child->cell().folder).number});
        child = running_.erase(child);
      }
    } catch (const SystemError&) {
      for (Child& child : running_) child.abandon();  // with nothing to write to; the last checkpoint is whole
      running_.clear();
      progress_.finish();
      throw;
    }
  }

  // Children that have ended.
  void collect() {
    for (auto child = running_.begin(); child != running_.end();) {
      const int code = child->poll(interrupt_requested());
      if (code < 0) {
        ++child;
        continue;
      }
      GridCell& cell = child->cell();
      const Grid& grid = child->grid();
      child = running_.erase(child);
      freed_ = true;
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
  ClaimWatch watch_;
  Progress progress_;
  std::vector<std::pair<fs::path, std::pair<dev_t, ino_t>>> folders_;
  std::vector<Waiting> waiting_;  // in the order of cells
  std::vector<Child> running_;
  std::set<std::string> elsewhere_, said_;  // who runs cells that this process waits for
  std::size_t runs_ = 0, done_ = 0, before_hashes_ = 0;
  std::vector<std::string> damaged_;  // why each is
  const double dead_by_ = steady_seconds() + seconds_to_die;
  std::int64_t steps_done_ = 0;
  int looks_ = 0;
  bool freed_ = false;  // there is room for another run
};

// A word as a shell reads it.
std::string shell_word(const std::string& word) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("-_=./,:+%@").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Results of a run that nobody has ended here, if it wrote them.
bool read_unproved(GridCell& cell) {
  try {
    read_figures(cell);
    return fs::exists(cell.folder / "weights.safetensors");
  } catch (const InputError&) { return false; }
}

}  // namespace

std::string log_of(const GridCell& cell) { return (cell.folder / "train.log").string(); }

std::string shell_command(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

void run_grids(std::vector<Grid>& grids, const Machine& machine) {
  require_own_folders(grids);
  for (const Grid& grid : grids) ensure_output_folder(grid.folder);
  // Workers may be ranks of a launcher's; what they run is not.
  setenv("WHENCE_RANK", "0", 1), setenv("WHENCE_RANKS", "1", 1);
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
    if (!read_mark(cell->folder)) write_mark(cell->folder, mark_of(*grid, *cell));
    std::vector<std::string> words = train_words(*grid, *cell, program);
    if (machine.device != "auto") words.insert(words.end(), {"--device", machine.device});
    words.insert(words.end(), {"--out", cell->folder.string()});
    if (has_checkpoint(*cell)) words.emplace_back("--resume");
    lines.push_back(shell_command(words));
  }
  return lines;
}

}  // namespace whence

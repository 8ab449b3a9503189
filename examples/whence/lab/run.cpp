#include "examples/whence/lab/run.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <fstream>
#include <iostream>
#include <list>
#include <set>
#include <span>
#include <system_error>
#include <thread>

#include "examples/whence/cli/child.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/output_file.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/machine/ranks.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/cpu/threads.h"
#include "tensor/error.h"

namespace whence {
namespace {

namespace fs = std::filesystem;

// ---- One laboratory at a time in a folder

// "process 4711 on gpu-3, since 2026-11-24 13:05 UTC"
std::string this_process() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  std::array<char, 32> date{};
  const std::time_t now = std::time(nullptr);
  std::strftime(date.data(), date.size(), "%F %R UTC", std::gmtime(&now));
  return to_text("process ", getpid(), " on ", host.data(), ", since ", date.data());
}

// FOLDER/lab.lock, held by the system (flock) until this process and its runs have ended, whatever ends them.
// SystemError that says who holds it and since when.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder) {
    const std::string path = (folder / "lab.lock").string();
    // Not closed in the runs that are started: those of a laboratory that was killed may take a moment to die, and hold
    // it.
    file_ = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (file_ < 0) throw SystemError(path, " cannot be written: ", std::generic_category().message(errno));
    constexpr int tries = 20;  // over two seconds
    for (int k = 1; flock(file_, LOCK_EX | LOCK_NB) != 0; ++k) {
      if (k < tries) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        continue;
      }
      const int why = errno;
      close(file_);
      if (why != EWOULDBLOCK) throw SystemError(path, " cannot be locked: ", std::generic_category().message(why));
      throw SystemError("--out: another laboratory runs in ", folder.string(), ": ", message_line(read_file(path)),
          "; wait for it, choose another folder, or see what is done with --collect");
    }
    const std::string owner = this_process();
    if (ftruncate(file_, 0) == 0) write_all(file_, std::as_bytes(std::span(owner)), path);
  }
  ~FolderLock() { close(file_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_;
};

// ---- Runs

std::vector<GridCell*> cells_in(std::vector<Grid>& grids) {
  std::vector<GridCell*> cells;
  for (Grid& grid : grids)
    for (GridCell& cell : grid.cells) cells.push_back(&cell);
  return cells;
}

void require_own_folders(std::vector<Grid>& grids) {
  std::set<fs::path> folders;
  for (const GridCell* cell : cells_in(grids))
    if (!folders.insert(cell->folder).second)
      throw InputError("--out: two runs would have one folder, ", cell->folder.string(), "; each run once required");
}

// The last line of a log, for an error.
std::string end_of(const std::string& log) {
  std::ifstream file(log);
  std::string last = "without a word";
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) last = line;
  return last;
}

std::vector<std::string> words_with(const Machine& machine, const GridCell& cell, const std::string& program) {
  std::vector<std::string> words = train_words(cell);
  words.insert(words.begin(), program);
  if (machine.threads > 0) words.insert(words.end(), {"--threads", std::to_string(machine.threads)});
  if (machine.device != "auto") words.insert(words.end(), {"--device", machine.device});
  return words;
}

// The cells that are not done; the others have their figures.
std::vector<GridCell*> not_done(std::vector<Grid>& grids) {
  std::vector<GridCell*> cells = cells_in(grids);
  std::erase_if(cells, [](GridCell* cell) { return read_if_done(*cell); });
  return cells;
}

std::int64_t steps_of(const std::vector<GridCell*>& cells) {
  std::int64_t steps = 0;
  for (const GridCell* cell : cells) steps += cell->steps;
  return steps;
}

class Laboratory {
 public:
  Laboratory(std::vector<Grid>& grids, const Machine& machine)
      : machine_(machine),
        all_(cells_in(grids)),
        waiting_(not_done(grids)),
        progress_(grids.size() == 1 ? "lab " + grids[0].task : to_text("lab, ", grids.size(), " tasks"), steps_of(all_),
            machine.quiet),
        done_(all_.size() - waiting_.size()),
        steps_done_(steps_of(all_) - steps_of(waiting_)) {}

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
  struct Running {
    GridCell* cell;
    pid_t process;
  };

  void start() {
    GridCell& next = *waiting_.front();
    waiting_.erase(waiting_.begin());
    if (next.failure.starts_with("damaged: "))
      progress_.note(to_text(next.folder.string(), ": ", next.failure, "; this run ends anew"));
    if (next.log_lost) remove_whole((next.folder / "checkpoints").string());
    ensure_output_folder(next.folder);
    // This very file for every run, even when another is built in its place.
    std::vector<std::string> words = words_with(machine_, next, "/proc/self/exe");
    running_.push_back({&next, start_child(std::move(words), log_of(next), Errors::in_the_file)});
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
      end(*run.cell, code);
      return true;
    });
  }

  void end(GridCell& cell, int code) {
    ++done_, steps_done_ += cell.steps;
    if (code != 0)
      cell.failure = to_text("exit code ", code, ": ", end_of(log_of(cell)));
    else
      (void)read_if_done(cell);
    cell.missing = false;
    progress_.note(to_text(cell.task, ", ", cell.name, ", seed ", cell.seed,
        cell.failure.empty() ? to_text(": done, ", done_, " of ", all_.size()) : ": failed with " + cell.failure));
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
        to_text("stopped with ", done_, " of ", all_.size(), " runs done, the others saved; the same command goes on"));
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
  std::vector<GridCell*> all_, waiting_;  // in the order of cells
  Progress progress_;
  std::vector<Running> running_;
  std::size_t done_;
  std::int64_t steps_done_;
};

}  // namespace

void run_grids(std::vector<Grid>& grids, const Machine& machine) {
  require_own_folders(grids);
  std::set<fs::path> folders;
  for (const Grid& grid : grids) folders.insert(grid.folder);
  std::list<FolderLock> locks;
  for (const fs::path& folder : folders) {
    ensure_output_folder(folder);
    locks.emplace_back(folder);
    remove_leftovers(folder.string());
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
  for (const GridCell* cell : not_done(grids))
    std::cerr << "missing: " << cell->folder.string() << ": " << message_line(cell->failure) << '\n';
}

std::vector<std::string> planned_lines(std::vector<Grid>& grids, const Machine& machine) {
  require_own_folders(grids);
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  std::vector<std::string> lines;
  for (const GridCell* cell : not_done(grids)) {
    if (cell->log_lost)
      throw InputError("--plan: ", cell->folder.string(), ": ", one_line(cell->failure),
          "; a whole run, or none, required; whence lab trains it anew, and so does a plan once its folder is removed");
    const std::vector<std::string> words = words_with(machine, *cell, program);
    for (const std::string& word : words)
      if (one_line(word) != word)
        throw InputError("--plan: ", in_quotes(word),
            " given; names without line ends and control characters required: a run is a line that a terminal may "
            "show");
    lines.push_back(shell_command(words));
  }
  return lines;
}

}  // namespace whence

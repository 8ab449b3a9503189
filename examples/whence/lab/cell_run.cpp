#include "examples/whence/lab/cell_run.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <system_error>

#include "examples/whence/cli/child.h"
#include "examples/whence/lab/run_mark.h"
#include "examples/whence/run/code_hash.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/run_record.h"
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

// The last line of a log, for an error.
std::string end_of(const std::string& log) {
  std::ifstream file(log);
  std::string last = "without a word";
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) last = line;
  return last;
}

}  // namespace

std::vector<std::string> train_words(const Grid& grid, const GridCell& cell, const std::string& program) {
  std::vector<std::string> words = command_of(grid, cell);
  words.insert(words.begin(), {program, "train"});
  return words;
}

bool has_checkpoint(const GridCell& cell) { return find_latest((cell.folder / "checkpoints").string()).has_value(); }

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

void refuse_foreign_run(const GridCell& cell) {
  for (const char* left : {"run.json", "weights.safetensors", "checkpoints"})
    if (fs::exists(cell.folder / left))
      throw InputError("--out: ", cell.folder.string(),
          " holds a run that no laboratory began; another folder required, or that one moved away");
}

void mark_as_begun(const Grid& grid, const GridCell& cell) { write_mark(cell.folder, mark_of(grid, cell)); }

CellRun::CellRun(const Grid& grid, const Machine& machine, GridCell& cell, Claim claim)
    : grid_(&grid), cell_(&cell), claim_(std::move(claim)) {
  const bool begun = has_checkpoint(cell);
  if (!begun) cell.code.clear();
  mark_as_begun(grid, cell);
  std::vector<std::string> arguments = train_words(grid, cell, machine.program.string());
  arguments.insert(arguments.end(), {"--threads", std::to_string(machine.threads), "--device", machine.device});
  arguments.insert(arguments.end(), {"--out", cell.folder.string()});
  if (begun) arguments.emplace_back("--resume");
  process_ = start_child(std::move(arguments), log_of(cell), Errors::in_the_file);
}

// Not SIGINT: a scheduler's SIGTERM may have come to it already, and the second of those ends it at once.
void CellRun::interrupt() const { kill(process_, SIGUSR1); }

void CellRun::abandon() {
  kill(process_, SIGKILL);
  wait_for_child(process_);
}

int CellRun::poll(bool asked) {
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
  if (lost_ = !claim_.beat(); lost_) return code;  // while this worker was frozen
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

}  // namespace whence

// The frame of a command in main(): errors in one line, the right exit code, no harm from a closed pipe, and signals: the
// first SIGINT, SIGTERM or SIGHUP requests a save and stop, the second stops at once. SIGUSR1, with which schedulers warn,
// requests it too, and is not counted. The exit codes are a promise to scripts: README.md, "What is promised".
#pragma once

#include <functional>
#include <string>

#include "tensor/error.h"

namespace whence {

enum class ExitCode {
  done = 0,
  failed = 1,         // a check found something, or an Error without its own code
  bad_usage = 2,      // InputError: an option, a name, a size
  bad_file = 3,       // the content of a file
  bad_system = 4,     // SystemError: the system would not open, read or write
  out_of_memory = 5,  // OutOfMemory, std::bad_alloc
  not_finite = 6,     // NotFinite
  does_not_fit = 7,   // DoesNotFit: a checkpoint of another model or run
  interrupted = 130,  // after saving
};

// Returns "Exit codes: 0 done, 1 failed, ...", for --help.
[[nodiscard]] std::string exit_codes_text();

// Runs `body` and returns the exit code: its own, or that of its exception.
// `program`, "whence train", precedes an error: one line of at most 500 characters. SIGPIPE is ignored: a training
// whose output goes to `head` still finishes and saves. SIGXFSZ is ignored too: a file beyond `ulimit -f` is an error
// of write. Closed standard streams lead to /dev/null. If memory ends inside a destructor, which cannot throw, the
// program ends there, with the same line and code.
[[nodiscard]] int run_main(const std::string& program, const std::function<int()>& body);

// Thrown when a program stopped on request, after it saved.
class Interrupted : public Error {
 public:
  using Error::Error;
};

// Installs the handler. SIGHUP stays ignored if it was (nohup).
void install_interrupt_handler();

// True if a signal was received since install_interrupt_handler(). Cheap enough for every step.
[[nodiscard]] bool interrupt_requested();

// Throws Interrupted if so: "WORK: stopped before it was done". For loops that have nothing to save.
void stop_if_interrupted(const char* work);

}  // namespace whence

#include "examples/whence/cli/run_main.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <string_view>

#include "examples/whence/cli/text.h"
#include "nn/io/files.h"

namespace whence {
namespace {

// Otherwise the next opened file takes the number of a closed standard stream, and prints go into that file.
void open_closed_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF) (void)::open("/dev/null", O_RDWR);  // the lowest free one
}

int report(const std::string& program, const char* problem, ExitCode code) {
  std::cerr << message_line(program + ": " + problem) << std::endl;
  return static_cast<int>(code);
}

template <class Kind> bool is(const std::exception& error) { return dynamic_cast<const Kind*>(&error) != nullptr; }

ExitCode code_of(const std::exception& error) {
  if (is<Interrupted>(error)) return ExitCode::interrupted;
  if (is<DoesNotFit>(error)) return ExitCode::does_not_fit;
  if (is<FileError>(error)) return ExitCode::bad_file;
  if (is<SystemError>(error) || is<std::filesystem::filesystem_error>(error)) return ExitCode::bad_system;
  if (is<InputError>(error)) return ExitCode::bad_usage;
  if (is<OutOfMemory>(error)) return ExitCode::out_of_memory;
  return is<NotFinite>(error) ? ExitCode::not_finite : ExitCode::failed;
}

constexpr char no_memory[] = "memory: the system gave no more; a smaller model, batch or length required\n";

// std::filesystem ends the program when a name finds no memory. Nobody can catch that, so print the same line and code.
std::terminate_handler terminate_otherwise = nullptr;
std::atomic<bool> memory_ended{false};

[[noreturn]] void note_that_memory_ended() {
  memory_ended = true;
  throw std::bad_alloc();
}

void terminated() {
  bool of_memory = memory_ended;
  try {
    if (std::current_exception()) throw;
  } catch (const std::bad_alloc&) { of_memory = true; } catch (...) {
    of_memory = false;
  }
  if (!of_memory) terminate_otherwise();
  std::cerr << "whence: " << no_memory << std::flush;
  std::_Exit(static_cast<int>(ExitCode::out_of_memory));
}

int guarded(const std::string& program, const std::function<int()>& body) {
  try {
    try {
      return body();
    } catch (const std::bad_alloc&) { throw; } catch (const std::exception& error) {
      return report(program, error.what(), code_of(error));
    } catch (...) {
      return report(program, "something other than a std::exception was thrown; one required", ExitCode::failed);
    }
  } catch (const std::bad_alloc&) {  // possibly of the report itself; the rest allocates nothing
    std::cerr << program << ": " << no_memory << std::flush;
    return static_cast<int>(ExitCode::out_of_memory);
  }
}

// A reader that went away (head, a closed pager) is no failure; a full disk is.
bool standard_output_lost() {
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::cout.good() && std::ferror(stdout) == 0) return false;
  pollfd output = {STDOUT_FILENO, POLLOUT, 0};
  const bool reader_gone = poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
  return !reader_gone;
}

// ---- Signals

constexpr std::array<int, 4> stop_signals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

std::atomic<bool> requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a handler may only touch lock-free atomics");

// Calls only what POSIX allows inside a handler.
extern "C" void on_stop_signal(int number) {
  const int saved_errno = errno;
  requested.store(true);
  // A second signal ends the program even if the main loop hangs. SIGUSR1 does not: it is a scheduler's warning before the
  // time is up, and SIGTERM follows while the program may still be saving.
  std::signal(SIGUSR1, SIG_IGN);
  for (const int signal : stop_signals)
    if (signal != SIGUSR1 && number != SIGUSR1) std::signal(signal, SIG_DFL);
  constexpr std::string_view notice = "\nstopping after this step; once more to stop at once\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, notice.data(), notice.size());
  errno = saved_errno;
}

}  // namespace

std::string exit_codes_text() {
  return R"(Exit codes: 0 done, 1 failed (a check, or an error without its own code), 2 bad usage, 3 bad file or data,
4 reading or writing refused by the system, 5 out of memory, 6 numbers not finite, 7 a checkpoint of another
model or run, 130 interrupted after saving.
)";
}

int run_main(const std::string& program, const std::function<int()>& body) {
  open_closed_standard_streams();
  if (std::get_terminate() != terminated) terminate_otherwise = std::set_terminate(terminated);
  std::set_new_handler(note_that_memory_ended);
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  const int code = guarded(program, body);
  if (standard_output_lost() && code <= 1) {
    return report(program, "standard output: not everything could be written; room and a writable target required",
        ExitCode::bad_system);
  }
  return code;
}

void install_interrupt_handler() {
  requested.store(false);
  for (const int signal : stop_signals)  // signal() lets a write go on that the signal interrupts
    if (std::signal(signal, on_stop_signal) == SIG_IGN && signal == SIGHUP) std::signal(signal, SIG_IGN);
}

bool interrupt_requested() { return requested.load(std::memory_order_relaxed); }

void stop_if_interrupted(const char* work) {
  if (interrupt_requested()) throw Interrupted(work, ": stopped before it was done");
}

}  // namespace whence

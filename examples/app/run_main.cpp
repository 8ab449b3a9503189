#include "examples/app/run_main.h"

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <new>
#include <string>

#include "examples/app/interrupt.h"
#include "examples/app/text.h"
#include "tensor/error.h"

namespace whence {
namespace {

enum ExitCode { done = 0, failed = 1, bad_input = 2, interrupted = 130 };

int report(const std::string& program, const char* problem, ExitCode code) {
  std::cerr << program << ": " << one_line(problem) << std::endl;
  return code;
}

int guarded(const std::string& program, const std::function<int()>& body) {
  try {
    return body();
  } catch (const Interrupted& error) {
    return report(program, error.what(), interrupted);
  } catch (const InputError& error) { return report(program, error.what(), bad_input); } catch (const std::bad_alloc&) {
    return report(program, "memory: the system gave no more; a smaller model, batch or length required", failed);
  } catch (const std::exception& error) { return report(program, error.what(), failed); }
}

// A reader that went away (head, a pager that was left) is no failure; a full disk is.
bool standard_output_lost() {
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::cout.good() && std::ferror(stdout) == 0) return false;
  pollfd output = {STDOUT_FILENO, POLLOUT, 0};
  const bool reader_gone = poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
  return !reader_gone;
}

}  // namespace

int run_main(const std::string& program, const std::function<int()>& body) {
  std::signal(SIGPIPE, SIG_IGN);
  const int code = guarded(program, body);
  if (standard_output_lost() && code == done) {
    return report(
        program, "standard output: not everything could be written; room and a writable target required", failed);
  }
  return code;
}

}  // namespace whence

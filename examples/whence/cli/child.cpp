#include "examples/whence/cli/child.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string_view>
#include <system_error>

#include "tensor/cpu/system.h"
#include "tensor/error.h"

namespace whence {

pid_t start_child(std::vector<std::string> arguments, const std::string& output, Errors errors) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  // O_NONBLOCK: a pipe would wait for a reader. O_NOFOLLOW: a link could lead elsewhere.
  const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0644);
  if (file < 0) throw SystemError(output, " cannot be written: ", std::generic_category().message(errno));
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {  // calls only what POSIX allows between fork and exec
    die_with_parent();
    if (getppid() != parent) _exit(127);
    dup2(file, 1);
    if (errors == Errors::in_the_file) dup2(file, 2);
    execvp(argv[0], argv.data());
    static constexpr std::string_view why = "the program could not be started\n";
    [[maybe_unused]] const auto written = write(2, why.data(), why.size());
    _exit(127);
  }
  const int failure = errno;
  close(file);
  if (child < 0) throw SystemError(arguments[0], " could not be started: ", std::generic_category().message(failure));
  return child;
}

int wait_for_child(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return exit_code_of(status);
}

int exit_code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace whence

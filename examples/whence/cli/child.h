// Another program, started with its output in a file.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace whence {

enum class Errors { in_the_file, as_ours };  // where its standard error goes

// `arguments[0]` is the program. It dies with this process, whatever ends that one. SystemError when it cannot be
// started, or the file `output` not be written.
// REQUIRES: called from the thread that lives longest, whose end is what the child is told of.
[[nodiscard]] pid_t start_child(std::vector<std::string> arguments, const std::string& output, Errors errors);

int wait_for_child(pid_t child);             // gives the exit code
[[nodiscard]] int exit_code_of(int status);  // or 128 and the signal that ended it; `status`: of waitpid

}  // namespace whence

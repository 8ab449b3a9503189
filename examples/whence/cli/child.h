// Starts another program with its output in a file.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace whence {

enum class Errors { in_the_file, as_ours };  // the destination of its standard error

// Starts the program `arguments[0]`. It dies with this process, however that ends. SystemError when it cannot be
// started, or `output` cannot be written.
// REQUIRES: called from the thread that lives longest: the child gets its signal when that thread ends.
[[nodiscard]] pid_t start_child(std::vector<std::string> arguments, const std::string& output, Errors errors);

int wait_for_child(pid_t child);             // returns the exit code
[[nodiscard]] int exit_code_of(int status);  // or 128 plus the signal that ended it; `status` is waitpid's

}  // namespace whence

// Another program, started with its output in a file.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace whence {

enum class Errors { in_the_file, as_ours };  // where its standard error goes

// `arguments[0]` is the program. It dies with this process, whatever ends that one. SystemError when it cannot be
// started or its output not be written. `output` empty: where ours goes, and in a group of its own, so that Ctrl-C comes
// to it from this process alone.
// REQUIRES: called from the thread that lives longest, whose end is what the child is told of.
[[nodiscard]] pid_t start_child(std::vector<std::string> arguments, const std::string& output, Errors errors);

// Waits for its end; exit_code_of() that.
int wait_for_child(pid_t child);

// Its exit code, or 128 and the signal that ended it.
[[nodiscard]] int exit_code_of(int status);

}  // namespace whence

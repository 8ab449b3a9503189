// What main() does around a command's work: errors in one line, the right exit code, and no harm from a closed pipe.
#pragma once

#include <functional>
#include <string>

namespace whence {

// Runs `body` and gives the exit code: its own (0 done), 1 failed, 2 bad usage or input, 130 interrupted after saving.
// `program` stands before an error: "whence train". SIGPIPE is ignored: a training run whose screen output goes to
// `head` still finishes and saves.
[[nodiscard]] int run_main(const std::string& program, const std::function<int()>& body);

}  // namespace whence

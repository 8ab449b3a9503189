// What every program's main() does around its work: errors in one line, the right exit code, and a closed pipe that
// hurts nobody.
#pragma once

#include <functional>

namespace whence {

// Runs `main_body` and gives the exit code: its own (0 done), 1 failed, 2 bad usage or input, 130 interrupted after
// saving.
// SIGPIPE is ignored: a training run whose screen output goes to `head` still finishes and saves.
[[nodiscard]] int run_main(int argc, char** argv, const std::function<int(int, char**)>& main_body);

}  // namespace whence

// The commands of `whence`. A source file of examples/whence/ or examples/whence/bench/ is one command and registers
// itself:
//   const RegisterCommand registered{{"recall", Purpose::train, "DAPE V2's associative recall by construction", run}};
// One that forgets to does not compile: its function would be unused.
#pragma once

#include <string>

#include "examples/whence/cli/command_line.h"

namespace whence {

enum class Purpose { learn, train, check, machine };  // the sections of `whence --help`, in this order

struct Command {
  std::string name;  // as it is typed: "train", "bench attention"
  Purpose purpose;
  std::string summary;            // one line
  int (*run)(CommandLine& line);  // the exit code; `line` has what was typed behind the name, and no options yet
};

struct RegisterCommand {
  explicit RegisterCommand(Command command);  // where the name is taken, whence_main says so and does nothing
};

}  // namespace whence

// The commands of `whence`. A source file of examples/whence/ is one command and registers itself:
//   const RegisterCommand registered{{"tasks", Purpose::learn, "the tasks: tests, guesses, the papers' models", run}};
// A command without the registration does not compile: its function would be unused.
#pragma once

#include <string>

#include "examples/whence/cli/fields.h"

namespace whence {

enum class Purpose { learn, train, check, machine };  // the sections of `whence --help`, in this order

struct Command {
  std::string name;  // as the user types it: "train"
  Purpose purpose;
  std::string summary;            // one line
  int (*run)(CommandLine& line);  // returns the exit code; `line` has the words after the name, and no options yet
};

struct RegisterCommand {
  explicit RegisterCommand(Command command);  // if the name is taken, whence_main reports it and does nothing
};

}  // namespace whence

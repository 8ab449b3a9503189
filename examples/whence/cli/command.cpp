#include "examples/whence/cli/command.h"

#include <algorithm>
#include <tuple>

#include "tensor/error.h"

namespace whence {
namespace {

std::vector<Command>& commands() {
  static std::vector<Command> list;
  return list;
}

}  // namespace

RegisterCommand::RegisterCommand(Command command) {
  auto& list = commands();
  if (std::ranges::count(list, command.name, &Command::name))
    throw Error("command ", command.name, ": registered twice; one name per command required; rename one");
  list.push_back(std::move(command));
  std::ranges::sort(list, {}, [](const Command& each) { return std::tuple(each.purpose, each.name); });
}

const std::vector<Command>& registered_commands() { return commands(); }

}  // namespace whence

#include "examples/whence/whence.h"

#include <algorithm>
#include <iostream>
#include <tuple>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/run_main.h"
#include "examples/whence/run/commit.h"
#include "tensor/error.h"

namespace whence {
namespace {

using Words = std::vector<std::string>;

constexpr const char* titles[] = {"Learn", "Train", "Look and check", "Machine"};  // in the order of Purpose

std::vector<Command>& commands() {
  static std::vector<Command> list;
  return list;
}

// The error of a registration; empty: none. Registrations run before main, where nothing could catch it, so whence_main throws it.
std::string& fault() {
  static std::string text;
  return text;
}

std::string list_of_commands() {
  std::string text;
  const char* title = nullptr;
  for (const Command& command : commands()) {
    const char* its_title = titles[static_cast<int>(command.purpose)];
    if (title != its_title) text += to_text("\n", title = its_title, ":\n");
    text += to_text("  ", command.name, std::string(22 - std::min<std::size_t>(command.name.size(), 21), ' '),
        command.summary, "\n");
  }
  return text;
}

// Finds the command that the first word names and removes it; nullptr: none.
const Command* take_command(Words& words) {
  const auto found = std::ranges::find(commands(), words.empty() ? "" : words[0], &Command::name);
  if (found == commands().end()) return nullptr;
  words.erase(words.begin());
  return &*found;
}

int run(const Command& command, const Words& words) {
  CommandLine line("whence " + command.name, command.summary, words);
  return command.run(line);
}

int run_without_command(const Words& words) {
  const auto is_help = [](const std::string& word) { return word == "--help" || word == "-h"; };
  if (words.empty() || is_help(words[0])) {
    std::cout << "whence: trains and looks into transformers with any positional encoding\n\n"
              << "Usage: whence COMMAND [options]\n"
              << list_of_commands()
              << "\nwhence COMMAND --help shows the options of a command, whence --version the version.\n"
              << exit_codes_text();
  } else if (words[0] == "--version") {
    std::cout << program_and_version() << '\n';
  } else {
    Words names;
    for (const Command& command : commands()) names.push_back(command.name);
    refuse_name("command", words[0], names);
  }
  return 0;
}

}  // namespace

RegisterCommand::RegisterCommand(Command command) {
  if (std::ranges::count(commands(), command.name, &Command::name))
    fault() = to_text("command ", command.name, ": registered twice; one command per name required; rename one");
  commands().push_back(std::move(command));
  std::ranges::sort(commands(), {}, [](const Command& each) { return std::tuple(each.purpose, each.name); });
}

int whence_main(int argc, char** argv) {
  return run_main("whence", [&] {  // includes the words, which take memory too
    if (!fault().empty()) throw Error(fault());
    Words words(argv + std::min(argc, 1), argv + argc);
    if (!words.empty() && words[0] == "help") words.erase(words.begin()), words.emplace_back("--help");
    const Command* const command = take_command(words);
    return run_main(command ? "whence " + command->name : "whence",
        [&] { return command ? run(*command, words) : run_without_command(words); });
  });
}

}  // namespace whence

#include "examples/whence/whence.h"

#include <algorithm>
#include <iostream>
#include <set>
#include <tuple>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/run_main.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/run/commit.h"
#include "tensor/error.h"

namespace whence {
namespace {

using Words = std::vector<std::string>;

constexpr const char* titles[] = {"Learn", "Train", "Look and check", "Machine"};  // in the order of Purpose

// Sorts by purpose, then by name.
std::vector<Command>& commands() {
  static std::vector<Command> list;
  return list;
}

// The error of a registration; empty: none. Registrations run before main, where nothing could catch it, so whence_main throws it.
std::string& fault() {
  static std::string text;
  return text;
}

// Returns one line per command, by purpose.
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

// Returns what replaces a command of an earlier version; empty: there was no such command.
std::string successor_of(const std::string& command) {
  for (const char* script : {"lab", "reproduce", "convert", "score"})
    if (command == script) return to_text("examples/experiments/", script, ".py does this now");
  if (command == "sharpness") return "Run.hessian() of `import whence` does this now";
  if (command == "tokenize")
    return "examples/experiments/tokens.py does this now, with any tokenizer.json: it makes a token file for whence "
           "train";
  if (command == "quickstart") return "the script examples/quickstart does this now";
  if (command == "recall") return "the program examples/recall does this now";
  if (command == "precision") return "nn/README.md, \"What 16 bits lose\", has its table";
  return command == "completion" ? "whence no longer writes completions; see whence --help" : "";
}

// Handles --help, --version, and words that are no command.
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
    if (const std::string successor = successor_of(words[0]); !successor.empty())
      throw InputError(in_quotes(words[0]), " given; a command required; ", successor);
    Words names;
    for (const Command& command : commands()) names.push_back(command.name);
    const auto meant = nearest_name(words[0], names);
    throw InputError(in_quotes(words[0]), " given; a command required; ",
        meant ? to_text("did you mean '", *meant, "'?") : "see whence --help");
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

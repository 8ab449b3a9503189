// whence: the one program. `whence COMMAND ...` runs a command of the other files here.
#include <algorithm>
#include <iostream>
#include <set>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/command_line.h"
#include "examples/whence/cli/run_main.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/run/commit.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

constexpr const char* titles[] = {"Learn", "Train", "Look and check", "Machine"};  // by Purpose

// One line per command whose name begins with `first`, by purpose.
std::string list_of_commands(const std::string& first) {
  std::string text;
  const char* title = nullptr;
  for (const Command& command : registered_commands()) {
    if (!command.name.starts_with(first)) continue;
    const char* its_title = titles[static_cast<int>(command.purpose)];
    if (title != its_title) text += to_text("\n", title = its_title, ":\n");
    text += to_text("  ", command.name, std::string(22 - command.name.size(), ' '), command.summary, "\n");
  }
  return text;
}

std::string help() {
  return to_text("whence: trains and looks into transformers with any positional encoding\n\n",
      "Usage: whence COMMAND [options]\n", list_of_commands(""),
      "\nwhence COMMAND --help shows the options of a command, whence --version the version.\n", exit_codes_text());
}

// The command that the first words name, and how many words that takes; nullptr: none.
std::pair<const Command*, int> command_of(const std::vector<std::string>& words) {
  std::string name;
  for (std::size_t count = 1; count <= std::min<std::size_t>(words.size(), 2); ++count) {
    name += (name.empty() ? "" : " ") + words[count - 1];
    for (const Command& command : registered_commands())
      if (command.name == name) return {&command, static_cast<int>(count)};
  }
  return {nullptr, 0};
}

// For `whence completion`'s script: what may stand as the last word, one a line. A command's options are its to say.
int complete(std::vector<std::string> words) {
  if (words.empty()) words.emplace_back();
  if (words.back() == "=") words.back().clear();  // bash makes a word of it
  const std::string last = words.back();
  words.pop_back();
  std::erase(words, "=");
  const auto [command, taken] = command_of(words);
  if (command) {
    const auto first_option = std::ranges::find_if(words, [](const auto& word) { return word.starts_with("-"); });
    words.insert(first_option, CommandLine::complete);
    words.push_back(last);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return command->run(static_cast<int>(argv.size()) - taken + 1, argv.data() + taken - 1);
  }
  std::string before;
  for (const std::string& word : words) before += word + ' ';
  std::set<std::string> next;
  for (const Command& each : registered_commands()) {
    if (!each.name.starts_with(before)) continue;
    const std::string rest = each.name.substr(before.size());
    next.insert(rest.substr(0, rest.find(' ')));
  }
  if (words.empty()) next.insert({"--help", "--version"});
  for (const std::string& word : next) std::cout << word << '\n';
  return 0;
}

// --help, --version, "bench" alone, and whatever is no command.
int run_without_command(const std::vector<std::string>& words) {
  const auto is_help = [](const std::string& word) { return word == "--help" || word == "-h"; };
  if (words.empty() || is_help(words[0])) {
    std::cout << help();
    return 0;
  }
  if (words[0] == "--version") {
    std::cout << program_and_version() << '\n';
    return 0;
  }
  if (words[0] == CommandLine::complete) return complete({words.begin() + 1, words.end()});
  const std::string group = list_of_commands(words[0] + ' ');
  if (!group.empty() && (words.size() == 1 || is_help(words[1]))) {
    std::cout << "Usage: whence " << words[0] << " COMMAND [options]\n" << group;
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& command : registered_commands()) names.push_back(command.name);
  const std::string typed = group.empty() ? words[0] : words[0] + ' ' + words[1];
  const auto meant = nearest_name(typed, names);
  throw InputError(in_quotes(typed), " given; a command required; ",
      meant ? to_text("did you mean '", *meant, "'?") : "see whence --help");
}

}  // namespace
}  // namespace whence

int main(int argc, char** argv) {
  using namespace whence;
  return run_main("whence", [&] {  // around the words, too: they take memory
    const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    const auto found = command_of(words);
    const Command* command = found.first;
    const int taken = found.second;
    return run_main(command ? "whence " + command->name : "whence",
        [&] { return command ? command->run(argc - taken, argv + taken) : run_without_command(words); });
  });
}

// whence's commands: they are listed, explained and completed by shells, and documents name them correctly.
#include <algorithm>

#include "tests/support/programs.h"

using namespace whence;
using namespace whence::test;

namespace {

using Words = std::vector<std::string>;

Outcome run(const Words& words) { return RunningProgram(words).finish(); }

// Returns all commands.
std::vector<Words> all_commands() {
  std::vector<Words> commands;
  for (const auto& line : all_matches(run({"--help"}).out, R"(^  ([a-z]+)  )")) commands.push_back({line[1]});
  return commands;
}

// Returns the words of every "whence COMMAND ..." of a document: between backticks, and at the beginning of a line that is no prose.
std::vector<Words> commands_in(const std::string& path) {
  std::vector<Words> found;
  for (const auto& line : all_matches(text_of(source_folder() + "/" + path),
           R"((?:`|/|\$ |^)whence (?!is |itself )([a-z]+|--?[a-z-]+)( [^`\n]*)?)"))
    found.push_back(words(line[1] + replaced(line[2], " [#|;<>&].*", "")));
  return found;
}

}  // namespace

TEST_CASE("commands: --help lists each, each explains itself") {
  const Outcome help = run({"--help"});
  CHECK(help.code == 0);
  CHECK(run({"--version"}).out.starts_with("whence " WHENCE_VERSION));
  const std::vector<Words> commands = all_commands();
  for (Words command : commands) {
    std::string name = "whence";
    for (const std::string& word : command) name += ' ' + word;
    CAPTURE(name);
    CHECK(help.out.find("\n  " + name.substr(7) + "  ") != std::string::npos);
    command.push_back("--help");
    const Outcome page = run(command);
    CHECK(page.code == 0);
    CHECK(page.err.empty());
    CHECK_MESSAGE(page.out.starts_with(name + ": "), page.out);
    CHECK(page.out.find("\nUsage: " + name) != std::string::npos);
  }
  CHECK(run({"help"}).out == help.out);
  CHECK(run({"help", "look"}).out == run({"look", "--help"}).out);
}

TEST_CASE("commands: schemes and tasks list what there is and show one") {
  const std::string schemes = run({"schemes"}).out, two = run({"schemes", "rope", "cope"}).out;
  says(schemes, {"\ncope ", "\ndape(SCHEME) ", "\nrope "});
  CHECK((two.starts_with("rope: ") && has(two, "\ncope: ") && !has(two, "\nalibi:")));
  const std::string on_gpu = run({"schemes", "--executors", "cuda"}).out;
  const auto row_of = [&](const std::string& scheme) {
    const std::size_t at = on_gpu.find('\n' + scheme + ' ');
    return at == std::string::npos ? std::string() : on_gpu.substr(at + 1, on_gpu.find('\n', at + 1) - at - 1);
  };
  for (const char* scheme : {"cope", "shaw"}) CHECK(has(row_of(scheme), " tiled"));
  CHECK(has(row_of("cope(p_max=3, interpolation=equation5)"), "tiled: interpolation=equation5"));
  CHECK(row_of("cope(p_max=2)").empty());  // as cope
  CHECK(has(row_of("stick_breaking"), " reference  not tiled:"));
  const std::string tasks = run({"tasks"}).out, flip_flop = run({"tasks", "flip_flop"}).out;
  says(tasks, {"\nflip_flop ", "\nbucket_sort ", "\nlm "});
  says(flip_flop, {"dense", "steps=1500", "first bit"});
}

TEST_CASE("commands: every command that the documents name exists, with the options that they give it") {
  for (const std::string& path : documents()) {
    for (const Words& words : commands_in(path)) {
      std::string line = path + ": whence";
      for (const std::string& word : words) line += ' ' + word;
      CAPTURE(line);
      if (words.empty() || words[0] == "COMMAND" || words[0].starts_with("--")) continue;
      const auto first_option =
          std::find_if(words.begin(), words.end(), [](const auto& word) { return word.starts_with("-"); });
      Words asked(words.begin(), first_option);
      // Words in capitals are placeholders: `train TASK`, `tasks NAME`.
      std::erase_if(asked, [](const std::string& word) { return std::all_of(word.begin(), word.end(), ::isupper); });
      asked.insert(asked.end(), {"--help", "all"});
      const Outcome page = run(asked);
      CHECK(page.code == 0);
      for (const std::string& word : Words(first_option, words.end()))
        if (word.starts_with("--") && word != "--help" && word != "--version")
          CHECK_MESSAGE(has(page.out, "\n  " + word.substr(0, word.find('=')) + ' '), word);
    }
  }
}

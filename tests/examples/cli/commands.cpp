// whence's commands: they are listed, explained and completed by shells, and documents name them correctly.
#include <algorithm>

#include "tests/support/programs.h"

using namespace whence;
using namespace whence::test;

namespace {

// Returns the words of every "whence COMMAND ..." of a document: between backticks, and at the beginning of a line that is no prose.
std::vector<Arguments> commands_in(const std::string& path) {
  std::vector<Arguments> found;
  for (const auto& line : all_matches(text_of(source_folder() + "/" + path),
           R"((?:`|/|\$ |^)whence (?!is |itself )([a-z]+|--?[a-z-]+)( [^`\n]*)?)"))
    found.push_back(words(line[1] + replaced(line[2], " [#|;<>&].*", "")));
  return found;
}

}  // namespace

TEST_CASE("commands: --help lists each, each explains itself") {
  const Outcome help = done("--help");
  CHECK(done("--version").out.starts_with("whence " WHENCE_VERSION));
  const auto commands = all_matches(help.out, R"(^  ([a-z]+)  )");
  CHECK(commands.size() > 10);
  for (const auto& command : commands) {
    const std::string name = "whence " + command[1];
    const Outcome page = done(command[1] + " --help");
    CHECK(page.err.empty());
    CHECK_MESSAGE(page.out.starts_with(name + ": "), page.out);
    CHECK(page.out.find("\nUsage: " + name) != std::string::npos);
  }
  CHECK(done("help").out == help.out);
  CHECK(done("help look").out == done("look --help").out);
}

TEST_CASE("commands: schemes and tasks list what there is and show one") {
  const std::string schemes = done("schemes").out, two = done("schemes rope cope").out;
  says(schemes, {"\ncope ", "\ndape(SCHEME) ", "\nrope "});
  CHECK((two.starts_with("rope: ") && has(two, "\ncope: ") && !has(two, "\nalibi:")));
  const std::string on_gpu = done("schemes --executors cuda").out;
  const auto row_of = [&](const std::string& scheme) {
    const std::size_t at = on_gpu.find('\n' + scheme + ' ');
    return at == std::string::npos ? std::string() : on_gpu.substr(at + 1, on_gpu.find('\n', at + 1) - at - 1);
  };
  for (const char* scheme : {"cope", "shaw"}) CHECK(has(row_of(scheme), " tiled"));
  CHECK(has(row_of("cope(p_max=3, interpolation=equation5)"), "tiled: interpolation=equation5"));
  CHECK(row_of("cope(p_max=2)").empty());  // as cope
  CHECK(has(row_of("stick_breaking"), " reference  not tiled:"));
  const std::string tasks = done("tasks").out, flip_flop = done("tasks flip_flop").out;
  says(tasks, {"\nflip_flop ", "\nbucket_sort ", "\nlm "});
  says(flip_flop, {"dense", "steps=1500", "first bit"});
}

TEST_CASE("commands: every command that the documents name exists, with the options that they give it") {
  for (const std::string& path : documents()) {
    for (const Arguments& words : commands_in(path)) {
      std::string line = path + ": whence";
      for (const std::string& word : words) line += ' ' + word;
      CAPTURE(line);
      if (words.empty() || words[0] == "COMMAND" || words[0].starts_with("--")) continue;
      const auto first_option =
          std::find_if(words.begin(), words.end(), [](const auto& word) { return word.starts_with("-"); });
      Arguments asked(words.begin(), first_option);
      // Words in capitals are placeholders: `train TASK`, `tasks NAME`.
      std::erase_if(asked, [](const std::string& word) { return std::all_of(word.begin(), word.end(), ::isupper); });
      asked.insert(asked.end(), {"--help", "all"});
      const Outcome page = RunningProgram(asked).finish();
      CHECK(page.code == 0);
      for (const std::string& word : Arguments(first_option, words.end()))
        if (word.starts_with("--") && word != "--help" && word != "--version")
          CHECK_MESSAGE(has(page.out, "\n  " + word.substr(0, word.find('=')) + ' '), word);
    }
  }
}

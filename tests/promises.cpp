// Every numbered test of the list that this engine answers to (F1 to F16 files, K1 to K10 dying and lack of resources,
// D1 to D10 data, T1 to T17 tensors and numbers, L1 to L8 training) is the beginning of a case's name, or stands in
// tests/README.md with why it does not apply.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/places.h"

namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Where each number is tested: "F4, F5: ..." names two, in a TEST_CASE or at the top of a class of tests/attack.
std::map<std::string, std::set<std::string>> named_in_tests() {
  static const std::regex title(R"re((?:TEST_CASE(?:_TEMPLATE)?\(\s*|^"")"((?:[FKDTL]\d+(?:, )?)+): )re"),
      number(R"([FKDTL]\d+)");
  std::map<std::string, std::set<std::string>> found;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(whence::test::source_folder()) / "tests")) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".cpp" && extension != ".py") continue;
    const std::string text = text_of(entry.path());
    for (auto match = std::sregex_iterator(text.begin(), text.end(), title); match != std::sregex_iterator(); ++match) {
      const std::string numbers = (*match)[1];
      for (auto one = std::sregex_iterator(numbers.begin(), numbers.end(), number); one != std::sregex_iterator();
           ++one)
        found[one->str()].insert(entry.path().filename().string());
    }
  }
  return found;
}

}  // namespace

TEST_CASE("promises: every numbered test has a case with its number, or a reason why it does not apply") {
  const std::string readme = text_of(fs::path(whence::test::source_folder()) / "tests/README.md");
  const auto found = named_in_tests();
  for (const auto& kind : std::map<char, int>{{'F', 16}, {'K', 10}, {'D', 10}, {'T', 17}, {'L', 8}}) {
    for (int k = 1; k <= kind.second; ++k) {
      const std::string number = kind.first + std::to_string(k);
      const bool tested = found.contains(number);
      // "| F16 | does not apply: ... |"; a number may not be both.
      const bool excused = std::regex_search(readme, std::regex("\\| " + number + " \\| does not apply: [^|]{20,}\\|"));
      const std::string problem = tested ? ": tested, and said not to apply"
                                         : ": no case's name begins with it, and tests/README.md gives no reason";
      CHECK_MESSAGE(tested != excused, number, problem);
    }
  }
}

TEST_CASE(
    "promises: tests/README.md tells every class of the attack, and every program and file that it names is there") {
  const fs::path folder = fs::path(whence::test::source_folder()) / "tests";
  const std::string readme = text_of(folder / "README.md"), driver = text_of(folder / "attack/run");
  const std::regex entry("\"([a-z_]+)\": \\d+");
  const std::string share =
      driver.substr(driver.find("SHARE = {"), driver.find('}', driver.find("SHARE = {")) - driver.find("SHARE = {"));
  int classes = 0;
  for (auto match = std::sregex_iterator(share.begin(), share.end(), entry); match != std::sregex_iterator();
       ++match, ++classes) {
    const std::string name = (*match)[1];
    CHECK_MESSAGE(readme.find("`" + name + "`") != std::string::npos, name);
    CHECK_MESSAGE(fs::exists(folder / "attack" / (name + ".py")), name);
  }
  CHECK(classes >= 10);
}

TEST_CASE("promises: every promise of tests/README.md names a test that is there") {
  const fs::path root = whence::test::source_folder();
  const std::string readme = text_of(root / "tests/README.md");
  const std::size_t begin = readme.find("| Promise | Held by | Not promised |");
  REQUIRE(begin != std::string::npos);
  std::istringstream rows(readme.substr(begin, readme.find("\n\n", begin) - begin));
  const std::regex holder("\\[([a-z_/]+\\.cpp)\\]\\(([a-z_/]+\\.cpp)\\): \"([^\"]+)\"");
  int promises = 0;
  for (std::string row; std::getline(rows, row);) {
    if (row.starts_with("| Promise |") || row.starts_with("|---")) continue;
    ++promises;
    int tests = 0;
    for (auto match = std::sregex_iterator(row.begin(), row.end(), holder); match != std::sregex_iterator(); ++match) {
      const std::string file = (*match)[2], title = (*match)[3];
      CHECK((*match)[1] == file);
      const std::string text = text_of(root / "tests" / file);
      const bool there = text.find("TEST_CASE(\"" + title) != std::string::npos ||
                         text.find("TEST_CASE(\n    \"" + title) != std::string::npos;
      CHECK_MESSAGE(there, file, " has no case that begins with: ", title);
      ++tests;
    }
    CHECK_MESSAGE(tests > 0, row);
  }
  CHECK(promises >= 15);
}

// The rooms of the programs, the folders of examples/whence, have an order like layers.
#include <doctest/doctest.h>
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/programs.h"

using namespace whence;
namespace fs = std::filesystem;

TEST_CASE("layering: a room of the programs includes only itself and rooms before it") {
  const std::vector<std::string> order{"cli", "report", "machine", "verify", "run", "tasks", "language", "study",
      "look", "bench", "playground", "python"};
  const fs::path programs = test::source_folder() / fs::path("examples/whence");
  std::size_t includes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(programs)) {
    const std::string ending = entry.path().extension().string();
    if (ending != ".h" && ending != ".cpp") continue;
    const std::string file = fs::relative(entry.path(), programs).generic_string();
    // Files in no room are the commands. They come last.
    const auto place_of = [&](const std::string& path) {
      const auto slash = path.find('/');
      return slash == std::string::npos ? order.end() : std::find(order.begin(), order.end(), path.substr(0, slash));
    };
    if (file.find('/') != std::string::npos) CHECK_MESSAGE(place_of(file) != order.end(), file, " is in no known room");
    const std::string text = test::text_of(entry.path());
    for (const auto& line : test::all_matches(text, R"re(#include "examples/whence/([^"]+)")re")) {
      const std::string included = line[1];
      ++includes;
      CHECK_MESSAGE(place_of(included) <= place_of(file), file, " includes ", included);
    }
  }
  CHECK(includes > 300);
}

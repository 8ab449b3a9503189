// Rules of the sources: includes point one way, public headers include no third-party header, links of documents lead to
// files, and every promise of tests/README.md has its test.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "tensor/error.h"
#include "tests/support/programs.h"

using namespace whence;
using test::all_matches, test::replaced, test::text_of;
namespace fs = std::filesystem;

namespace {

const fs::path root = test::source_folder();

std::vector<fs::path> sources_of(const std::string& layer, const std::set<std::string>& endings) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(root / layer))
    if (endings.contains(entry.path().extension().string())) found.push_back(entry.path());
  return found;
}

struct Include {
  fs::path file;
  std::string included;  // as written
  bool quoted;
};

// Calls f(file, line) for the lines of the folder's sources.
template <class F> void each_line(const std::string& folder, const std::set<std::string>& endings, const F& f) {
  for (const fs::path& file : sources_of(folder, endings))
    for (const std::string& line : test::lines_of(text_of(file))) f(file, line);
}

std::vector<Include> includes_under(const std::string& folder) {
  std::vector<Include> found;
  each_line(folder, {".h", ".cpp", ".cu"}, [&](const fs::path& file, const std::string& line) {
    const std::string directive = "#include ";
    if (!line.starts_with(directive)) return;
    const std::size_t begin = directive.size() + 1;
    found.push_back({file, line.substr(begin, line.find_first_of(">\"", begin) - begin), line[begin - 1] == '"'});
  });
  return found;
}

// True if the code has the word, or one that begins with it if it ends with "*".
bool has_word(const std::string& code, std::string word) {
  const bool begins = word.ends_with("*");
  if (begins) word.pop_back();
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (std::size_t at = code.find(word); at != std::string::npos; at = code.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_part(code[at - 1])) && (begins || end == code.size() || !is_part(code[end]))) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("layering: a layer includes only itself and lower layers") {
  const std::map<std::string, std::set<std::string>> allowed = {{"tensor", {"tensor"}},
      {"autograd", {"autograd", "tensor"}}, {"nn", {"nn", "autograd", "tensor"}}, {"cuda", {"cuda", "tensor"}},
      {"examples", {"examples", "nn", "autograd", "tensor"}}};
  // No structured binding: CHECK_MESSAGE captures, and clang 16 with OpenMP cannot capture one.
  for (const auto& entry : allowed) {
    const std::string& layer = entry.first;
    const std::set<std::string>& below = entry.second;
    for (const Include& include : includes_under(layer)) {
      if (!include.quoted) continue;
      const std::string top = include.included.substr(0, include.included.find('/'));
      CHECK_MESSAGE(below.contains(top), include.file.string(), " includes ", include.included);
    }
  }
}

TEST_CASE("layering: third-party headers stay in source files, each kind where it belongs") {
  for (const std::string layer : {"tensor", "autograd", "nn", "cuda", "examples"}) {
    for (const Include& include : includes_under(layer)) {
      const bool json = include.included.starts_with("nlohmann/");
      const bool blas = include.included.find("cblas") != std::string::npos, header = include.file.extension() == ".h";
      INFO(include.file.string(), " includes ", include.included);
      CHECK_FALSE((header && (json || blas)));
      CHECK_FALSE((json && layer != "nn" && layer != "examples"));
      CHECK_FALSE(include.included.starts_with("doctest"));
    }
  }
}

TEST_CASE("layering: a room of the programs includes only itself and rooms before it") {
  const std::vector<std::string> order{"cli", "report", "machine", "verify", "run", "tasks", "language", "study",
      "look", "bench", "playground", "python"};
  const std::string programs = "examples/whence/";
  const auto place_of = [&](const std::string& file) {  // of commands, which are in no room: the last
    const std::size_t slash = file.find('/');
    const auto place = std::ranges::find(order, file.substr(0, slash));
    CHECK_MESSAGE((slash == std::string::npos || place != order.end()), file, " is in no known room");
    return place;
  };
  for (const Include& include : includes_under(programs)) {
    if (!include.included.starts_with(programs)) continue;
    const std::string file = fs::relative(include.file, root / programs), included = include.included;
    CHECK_MESSAGE(place_of(included.substr(programs.size())) <= place_of(file), file, " includes ", included);
  }
}

TEST_CASE("layering: only the one qualifier decides by preprocessor whether there is CUDA") {
  const std::set<std::string> may{"device.h", "launch.h", "math.h", "half.h"};
  for (const std::string layer : {"tensor", "autograd", "nn", "examples"}) {
    for (const fs::path& file : sources_of(layer, {".h", ".cpp"}))
      if (!may.contains(file.filename())) CHECK_MESSAGE(!test::has(text_of(file), "__CUDA"), file.string());
  }
}

// A kernel with threadIdx or asm cannot run under the emulator. A kernel that is not started by launch_kernel is missing
// in errors and counts.
TEST_CASE("layering: kernels know the machine through thread.h and tensor_cores.h of cuda/vocabulary alone") {
  const std::pair<std::vector<std::string>, std::set<std::string>> allowed[] = {
      {{"asm", "__asm*"}, {"fibers.cpp", "subnormals.h", "tensor_cores.h"}},
      {{"<<<*"}, {"launch_kernel.h", "launch.h"}},
      {{"threadIdx", "blockIdx", "blockDim", "gridDim", "__shared__", "__syncthreads", "__syncwarp", "__shfl*",
           "atomicAdd"},
          {"thread.h", "launch.h"}},
      {{"cudaMallocManaged"}, {}}};
  for (const std::string layer : {"tensor", "autograd", "nn", "cuda", "examples"})
    each_line(layer, {".h", ".cpp", ".cu"}, [&](const fs::path& file, const std::string& line) {
      const std::string code = line.substr(0, line.find("//"));
      for (const auto& [words, files] : allowed)
        if (!files.contains(file.filename()) &&
            std::ranges::any_of(words, [&](const auto& word) { return has_word(code, word); }))
          FAIL_CHECK(file.string(), ": ", line);
    });
}

// nvcc 13.0 silently drops such an `else`: the gradient of CoPE's keys had no sums of gates, on a GPU alone.
TEST_CASE("layering: no `if constexpr` with a bare loop has an `else`") {
  for (const fs::path& file : sources_of("cuda", {".h", ".cu"}))
    for (const auto& found : all_matches(
             text_of(file), R"(\n( *)if constexpr \([^\n]*\)\n\1 +(for|while)\b[^\n]*\n(\1 +[^\n]*\n)*\1else\b)"))
      FAIL_CHECK(file.string(), ": ", found[0]);
}

TEST_CASE("documents: what the README says of the papers' tables is what is recorded") {
  const std::string readme = text_of(root / "README.md");
  std::ifstream page(root / "examples/whence/papers/README.md");
  int rows = 0;
  for (std::string line; std::getline(page, line) && !line.starts_with("##");) {
    if (!line.starts_with("|")) continue;
    CHECK_MESSAGE(readme.find(line + "\n") != std::string::npos, line);
    ++rows;
  }
  CHECK(rows == 5);  // a head, a rule and three papers
  for (const char* words :
      {R"(Corrected for the number of tests[^.]*\.)", R"(In \d+ of the \d+ that hold beyond [^:]*: [^.]*\.)"})
    CHECK(test::has(replaced(readme, "\\s+", " "),
        all_matches(text_of(root / "examples/whence/papers/README.md"), words).at(0)[0]));
  const std::string cell = R"( \| (\d+))";
  int sums[4] = {};  // rows, compared, computed, not made
  for (const auto& row : all_matches(text_of(root / "examples/whence/papers/README.md"),
           R"(^\| [^|]* \(arXiv:[0-9.]+\))" + cell + cell + cell + cell))
    for (int k = 0; k < 4; ++k) sums[k] += std::stoi(row[static_cast<std::size_t>(k) + 1]);
  CHECK(test::has(replaced(readme, "\\s+", " "),
      to_text("Of their ", sums[0], " tables, figures and statements ", sums[1],
          " are trained again at a laptop's size, on novels and on "
          "our own source in place of the papers' corpora; ",
          sums[2], " are computed, without a verdict; ", sums[3],
          " are not made, because they need many GPUs or other people's data or services (")));
  CHECK(sums[0] == sums[1] + sums[2] + sums[3]);
}

TEST_CASE("documents: what the README says of a GPU stands on the newest pages that have it") {
  const std::string readme = replaced(text_of(root / "README.md"), "\\s+", " ");
  std::set<fs::path> pages;
  for (const auto& each : fs::directory_iterator(root / "cuda/results"))
    if (each.path().extension() == ".md") pages.insert(each.path());
  const auto newest = [&](const std::string& pattern) {
    for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
      const std::string text = text_of(*page);
      const auto commit = all_matches(text, R"(\(commit (\w+))"), found = all_matches(text, pattern);
      if (!found.empty() && !commit.empty()) return std::pair{commit[0][1], found};
    }
    FAIL("no page of cuda/results has ", pattern);
    return std::pair<std::string, decltype(all_matches("", ""))>{};
  };
  const auto [of_checks, checks] = newest(R"(conformance \| passed .* (\d+) checks run, 0 failed)");
  CHECK(test::has(readme, to_text("all ", checks[0][1], " conformance checks of commit ", of_checks, " passed")));
  const auto [of_steps, steps] = newest(R"(^\| (?:alibi|cope|dape\(kerple\)|cdape\(kerple\)) \| (\d+) \|)");
  REQUIRE(steps.size() == 4);
  const auto thousand = [&](std::size_t k) { return std::lround(std::stod(steps[k][1]) / 1000); };
  CHECK(test::has(readme, to_text("At ", of_steps, " a bf16 step of GPT-2's 124M, as one graph, made ", thousand(0),
                              " thousand tokens/s with ALiBi, ", thousand(1), " with CoPE, ", thousand(2),
                              " with DAPE and ", thousand(3), " with CDAPE")));
  const auto [of_torch, beside] = newest(R"(^\| bf16 \| .* \| ([0-9.]+) \|$)");
  const auto failed = all_matches(
      text_of(root / "cuda/README.md"), of_steps + R"(\]\([^)]*\), with\nchanges, (\d+ of \d+ checks failed))");
  CHECK((failed.size() == 1 && test::has(readme, failed[0][1])));
  CHECK((of_torch == of_steps && test::has(readme, to_text("it is ", beside[0][1], " times PyTorch"))));
}

TEST_CASE("documents: every file that a document points to is there") {
  for (const std::string& document : test::documents()) {
    const fs::path here = (root / document).parent_path();
    std::istringstream lines(text_of(root / document));
    std::string readme, line;
    for (bool code = false; std::getline(lines, line);) {
      if (line.starts_with("```")) code = !code;
      if (!code) readme += line + '\n';
    }
    for (const auto& link : all_matches(readme, R"(\]\(([^)#]+)(#[^)]*)?\))"))
      if (!link[1].starts_with("http")) CHECK_MESSAGE(fs::exists(here / link[1]), document, ": ", link[1]);
  }
}

TEST_CASE("documents: every erratum that a comment refers to is there") {
  const std::string errata = text_of(root / "nn/errata.md");
  for (const std::string folder : {"autograd", "nn", "examples", "tests"}) {
    for (const fs::path& file : sources_of(folder, {".h", ".cpp", ".py"})) {
      const std::string text = text_of(file);
      if (!test::has(text, "nn/errata.md")) continue;
      for (const auto& reference : all_matches(text, R"(nn/errata\.md((, [A-D]\d+)+))")) {
        for (const auto& entry : all_matches(reference[1], "[A-D]\\d+")) {
          const auto headed = all_matches(errata, R"(^- \*\*([A-D]\d+, )*)" + entry[0] + R"([.,]? )");
          CHECK_MESSAGE(headed.size() == 1, file.string(), ": ", entry[0]);
        }
      }
    }
  }
}

TEST_CASE("promises: every promise of tests/README.md names a test that is there") {
  const std::string readme = text_of(root / "tests/README.md");
  const std::size_t begin = readme.find("| Promise | Held by | Not promised |");
  REQUIRE(begin != std::string::npos);
  std::istringstream rows(readme.substr(begin, readme.find("\n\n", begin) - begin));
  for (std::string row; std::getline(rows, row);) {
    if (row.starts_with("| Promise |") || row.starts_with("|---")) continue;
    const auto holders = all_matches(row, R"x(\[([a-z_/]+\.(?:cpp|py))\]\(([a-z_/]+\.(?:cpp|py))\): "([^"]+)")x");
    for (const auto& holder : holders) {
      const std::string file = holder[2], title = holder[3];
      CHECK(holder[1] == file);
      const std::string text = text_of(root / "tests" / file);
      const bool there = text.find("TEST_CASE(\"" + title) != std::string::npos ||
                         text.find("TEST_CASE(\n    \"" + title) != std::string::npos ||
                         text.find("\ndef " + title) != std::string::npos;
      CHECK_MESSAGE(there, file, " has no case that begins with: ", title);
    }
    CHECK_MESSAGE(!holders.empty(), row);
  }
}

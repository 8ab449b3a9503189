// Damaged results of a laboratory, runs of others, and folders of runs.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "examples/whence/lab/grid.h"
#include "examples/whence/run/run_files.h"
#include "tensor/error.h"
#include "tests/support/programs.h"

using namespace whence;
using test::has, test::lab, test::small_grid;
namespace fs = std::filesystem;

namespace {

void rewrite(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  REQUIRE_MESSAGE(at != std::string::npos, what);
  return text.replace(at, what.size(), with);
}

// A folder of the small grid, trained once.
const std::string& trained() {
  static const test::Scratch scratch("lab-damaged");
  static const std::string folder = [] {
    const test::Outcome outcome = lab(small_grid, scratch / "out");
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return scratch / "out";
  }();
  return folder;
}

}  // namespace

TEST_CASE("lab: results that are no whole results are named, not counted, and that run ends anew with the same") {
  struct Damage {
    const char *file, *what, *with, *said;  // no `what`: all of it
  };
  const std::vector<Damage> damages{{"results.jsonl", "", "", "no line of test set"},
      {"results.jsonl", "", "{}\n", "no field 'test_set'"}, {"results.jsonl", "", "[1]\n", "a JSON object required"},
      {"results.jsonl", "\"test_set\":\"dense\"", "\"test_set\":3", ": field 'test_set' is a whole number"},
      {"results.jsonl", "\"test_set\":\"dense\"", "\"test_set\":\"dnese\"", "no test set \"dnese\""},
      {"results.jsonl", "\"test_set\":\"dense\"", "\"test_set\":\"in distribution\"", "\"in distribution\" twice"},
      {"results.jsonl",
          "\"token_error_percent\":", "\"token_error_percent\":\"1\",\"x\":", "is a text; a number required"},
      {"results.jsonl", "\"token_error_percent\":", "\"token_error_percent\":-1,\"x\":", "a percentage required"},
      {"results.jsonl", "\"sequence_error_percent\":", "\"x\":", "no field 'sequence_error_percent'"},
      {"results.jsonl", "\"guess: ", "\"guess: x\":true,\"guess: ", "field 'guess: x' is true or false"},
      {"results.jsonl", "}\n", "", "line 1: "}, {"metrics.jsonl", "", "", "no line"},
      {"metrics.jsonl", "\"step\":60", "\"step\":1e400", "line "},
      {"metrics.jsonl", "\"step\":60", "\"step\":61", "to 60 required"},
      {"metrics.jsonl", "\"loss\":", "\"loss\":\"3\",\"x\":", "field 'loss' is a text"}};
  std::vector<std::string> collect = small_grid;
  collect.emplace_back("--collect");
  for (const Damage& damage : damages) {
    const fs::path file = fs::path(trained()) / "rope.0" / damage.file;
    const std::string whole = read_file(file);
    rewrite(file, damage.what[0] == '\0' ? damage.with : replaced(whole, damage.what, damage.with));
    const test::Outcome outcome = lab(collect, trained());
    CHECK(outcome.code == 0);
    CHECK_MESSAGE(has(outcome.err, "rope.0: damaged: " + file.string() + ": "), outcome.err);
    CHECK_MESSAGE(has(outcome.err, damage.said), outcome.err);
    CHECK(has(outcome.out, "4 runs, 1 missing"));
    rewrite(file, whole);
  }
  const std::string file = trained() + "/rope.0/results.jsonl", whole = read_file(file);
  for (const bool there : {true, false}) {
    rewrite(file, whole.substr(0, whole.size() / 2));
    if (!there) fs::remove(file);
    CHECK(lab(small_grid, trained()).code == 0);
    CHECK(read_file(file) == whole);
  }
}

TEST_CASE("lab: checkpoints and weights of runs that are done may be removed") {
  fs::remove_all(trained() + "/rope.1/checkpoints");
  fs::remove(trained() + "/rope.1/weights.safetensors");
  const std::string scores = read_file(trained() + "/scores.csv");
  CHECK(lab(small_grid, trained()).code == 0);
  CHECK(read_file(trained() + "/scores.csv") == scores);
  CHECK_FALSE(fs::exists(trained() + "/rope.1/weights.safetensors"));
}

TEST_CASE(
    "lab: a run of the same options counts, whoever trained it; one of others is refused by its first difference") {
  const std::string record = trained() + "/cope-p_max=8.0/run.json", whole = read_file(record);
  const auto refusal = [&](const std::string& what, const std::string& with) {
    rewrite(record, replaced(whole, what, with));
    const test::Outcome outcome = lab(small_grid, trained());
    rewrite(record, whole);
    CHECK(outcome.code == 7);
    return outcome.err;
  };
  CHECK(has(refusal("\"steps\": 60", "\"steps\": 70"), "--steps is 70 there, 60 here"));
  CHECK(has(refusal("\"seed\": 0", "\"seed\": 3"), "--seed is 3 there, 0 here"));
  CHECK(has(refusal("\"subject\": \"flip_flop\"", "\"subject\": \"counting\""), "a run of counting is there"));
  CHECK(lab(small_grid, trained()).code == 0);
}

TEST_CASE("lab: no two schemes have one folder, a minus sign is written out, and long names are cut") {
  const std::string digits(220, '0'), longer = "forgetting(bias=1." + digits + "1)",
                                      other = "forgetting(bias=1." + digits + "2)";
  Grid grid;
  grid.task = "flip_flop", grid.seeds = 1, grid.folder = "out";
  grid.schemes = {"forgetting(bias=1)", "forgetting(bias=-1)", "cdape(kerple, kernel=3) + rope", longer, other};
  grid = planned(std::move(grid));
  std::vector<std::string> names;
  for (const GridCell& cell : grid.cells) names.push_back(cell.folder.filename());
  CHECK(names[0] == "forgetting-bias=1.0");
  CHECK(names[1] == "forgetting-bias=-1.0");
  CHECK(names[2] == "cdape-kerple,kernel=3-+rope.0");
  CHECK(names[3] != names[4]);
  CHECK((names[3].size() < 210 && names[3].starts_with("forgetting-bias=1.0000")));
}

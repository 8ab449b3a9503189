// The laboratory: its statistics against known numbers; a small grid, interrupted,
// continued, refused with other options.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <sstream>

#include "examples/app/run_files.h"
#include "examples/lab/statistics.h"
#include "tests/program_run.h"
#include "tests/reference.h"

using namespace whence;

TEST_CASE("means and deviations of a sample") {
  const Summary four = summary({2, 4, 4, 6});
  CHECK(four.mean == 4);
  CHECK(four.deviation == doctest::Approx(std::sqrt(8.0 / 3)));
  CHECK(std::isnan(summary({5}).deviation));
  CHECK(std::isnan(summary({}).mean));
}

TEST_CASE("the incomplete beta function: closed forms and symmetry") {
  for (const double x : {0.0, 0.1, 0.37, 0.5, 0.9, 1.0}) {
    CHECK(incomplete_beta(1, 1, x) == doctest::Approx(x).epsilon(1e-14));
    CHECK(incomplete_beta(3, 1, x) == doctest::Approx(x * x * x).epsilon(1e-14));
    CHECK(incomplete_beta(1, 4, x) == doctest::Approx(1 - std::pow(1 - x, 4)).epsilon(1e-14));
    CHECK(incomplete_beta(0.5, 0.5, x) == doctest::Approx(2 / M_PI * std::asin(std::sqrt(x))).epsilon(1e-13));
    CHECK(incomplete_beta(2.3, 0.7, x) + incomplete_beta(0.7, 2.3, 1 - x) == doctest::Approx(1).epsilon(1e-13));
  }
}

TEST_CASE("Welch's test: Student's own distributions, and no difference") {
  // Two and two values: with equal variances the freedom is 2, and P(|T| >= t) = 1 - t / sqrt(2 + t^2).
  const double t = 3 / std::sqrt(0.5 / 2 + 0.5 / 2);
  CHECK(welch_p_value({0, 1}, {3, 4}) == doctest::Approx(1 - t / std::sqrt(2 + t * t)).epsilon(1e-12));
  CHECK(welch_p_value({1, 2, 3}, {1, 2, 3}) == doctest::Approx(1));
  CHECK(welch_p_value({1, 2, 3}, {4, 5, 6}) == welch_p_value({4, 5, 6}, {1, 2, 3}));
  CHECK(std::isnan(welch_p_value({1, 1}, {2, 2})));
  CHECK(std::isnan(welch_p_value({1}, {2, 3})));
  // scipy.stats.ttest_ind([27.5, 21.0, 19.0, 23.6, 17.0], [27.1, 22.0, 20.8, 23.4, 23.4, 23.5], equal_var=False)
  CHECK(welch_p_value({27.5, 21.0, 19.0, 23.6, 17.0}, {27.1, 22.0, 20.8, 23.4, 23.4, 23.5}) ==
        doctest::Approx(0.42293002538244534).epsilon(1e-9));
}

namespace {

const std::vector<std::string> small_grid{"flip_flop", "--schemes", "cope(p_max=8),rope", "--seeds", "2", "--jobs", "2",
    "--quiet", "--set", "length=8 dim=8 layers=1 heads=2 steps=60 batch=4 test-sequences=20 save-every=5"};

test::Outcome lab(std::vector<std::string> arguments, const std::string& folder) {
  arguments.push_back("--out");
  arguments.push_back(folder);
  return test::RunningProgram("lab", arguments, folder + "_log").finish();
}

}  // namespace

TEST_CASE("a grid: results as a table and as files, nothing is trained twice, other options are refused") {
  std::filesystem::remove_all("grid");
  const test::Outcome first = lab(small_grid, "grid");
  REQUIRE_MESSAGE(first.code == 0, first.err);
  CHECK(first.out.find("flip_flop, token error %, lower is better") == 0);
  CHECK(first.out.find("4 runs") != std::string::npos);
  for (const char* name : {"report.html", "curves_flip_flop.svg", "scores.csv", "differences.csv",
           "cope_p_max_8.0/results.jsonl", "rope.1/run.json", "rope.1/metrics.csv"}) {
    CHECK_MESSAGE(std::filesystem::exists(std::filesystem::path("grid") / name), name);
  }
  std::istringstream runs(read_file("grid/runs.csv"));
  std::string line;
  std::getline(runs, line);
  CHECK(line == "task,test_set,scheme,seed,token_error_percent,sequence_error_percent,train_seconds");
  int values = 0;
  for (; std::getline(runs, line); ++values) CHECK(std::count(line.begin(), line.end(), ',') == 6);
  CHECK(values == 2 * 2 * 3);
  const std::string scores = read_file("grid/scores.csv"), weights = read_file("grid/rope.1/weights.safetensors");
  const auto written = std::filesystem::last_write_time("grid/rope.1/weights.safetensors");
  CHECK(lab(small_grid, "grid").code == 0);
  CHECK(read_file("grid/scores.csv") == scores);
  CHECK(scores.find('(') == scores.find("(p_max"));           // one number in each cell
  CHECK(first.out.find("0.03 (0.06)") == std::string::npos);  // the paper's figure of another size
  CHECK(std::filesystem::last_write_time("grid/rope.1/weights.safetensors") == written);
  std::vector<std::string> other = small_grid;
  other.back() += " lr=0.1";
  const test::Outcome refused = lab(other, "grid");
  CHECK(refused.code == 2);
  CHECK(refused.err.find("holds a run with other options") != std::string::npos);
}

TEST_CASE("a grid that is interrupted ends with 130 and goes on to the same weights") {
  std::filesystem::remove_all("whole");
  std::filesystem::remove_all("cut");
  std::vector<std::string> longer = small_grid;
  longer.back().replace(longer.back().find("steps=60"), 8, "steps=400");
  REQUIRE(lab(longer, "whole").code == 0);
  std::vector<std::string> arguments = longer;
  arguments.insert(arguments.end(), {"--out", "cut"});
  const test::RunningProgram running("lab", arguments, "cut_log");
  usleep(500000);
  running.signal(SIGINT);
  const test::Outcome stopped = running.finish();
  CHECK((stopped.code == 130 || stopped.code == 0));  // 0: it was faster than this test
  const test::Outcome resumed = lab(longer, "cut");
  REQUIRE_MESSAGE(resumed.code == 0, resumed.err);
  for (const char* cell : {"cope_p_max_8.0", "cope_p_max_8.1", "rope.0", "rope.1"}) {
    const std::string name = std::string(cell) + "/weights.safetensors";
    CHECK(read_file("whole/" + name) == read_file("cut/" + name));
  }
}

TEST_CASE("a grid refuses what it cannot run") {
  const auto refusal = [](const std::vector<std::string>& arguments) {
    const test::Outcome outcome = test::RunningProgram("lab", arguments, "refused").finish();
    return outcome.code == 2 ? outcome.err : "exit code " + std::to_string(outcome.code);
  };
  CHECK(refusal({}).find("no task given") != std::string::npos);
  CHECK(refusal({"flip_flap"}).find("did you mean 'flip_flop'") != std::string::npos);
  CHECK(refusal({"flip_flop", "--schemes", "rope,rotary"}).find("--schemes") != std::string::npos);
  CHECK(refusal({"flip_flop", "--schemes", "rop"}).find("did you mean 'rope'") != std::string::npos);
  CHECK(refusal({"lm"}).find("text has no test sets") != std::string::npos);
  CHECK(refusal({"flip_flop", "--steps", "3"}).find("write --set \"steps=...\"") != std::string::npos);
  for (const char* set : {"stepz=3", "dim=65", "length=15"}) {  // by train's own words, before a folder is made
    CHECK(refusal({"flip_flop", "--out", "refused_folder", "--set", set}).find("given") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists("refused_folder"));
  }
  CHECK(refusal({"flip_flop", "--set", "seed=3"}).find("lab chooses that one") != std::string::npos);
}

// The laboratory: its statistics against known numbers; a small grid, interrupted, continued.
#include <doctest/doctest.h>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/lab/findings.h"
#include "examples/whence/lab/grid.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/checkpoint.h"
#include "nn/io/files.h"
#include "tests/support/json.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using test::has, test::json_of, test::lab, test::small_grid;
namespace fs = std::filesystem;

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
  CHECK(
      welch_p_value(summary({0, 1}), summary({3, 4})) == doctest::Approx(1 - t / std::sqrt(2 + t * t)).epsilon(1e-12));
  CHECK(welch_p_value(summary({1, 2, 3}), summary({1, 2, 3})) == doctest::Approx(1));
  CHECK(welch_p_value(summary({1, 2, 3}), summary({4, 5, 6})) == welch_p_value(summary({4, 5, 6}), summary({1, 2, 3})));
  CHECK(std::isnan(welch_p_value(summary({1, 1}), summary({2, 2}))));
  CHECK(std::isnan(welch_p_value(summary({1}), summary({2, 3}))));
  // scipy.stats.ttest_ind([27.5, 21.0, 19.0, 23.6, 17.0], [27.1, 22.0, 20.8, 23.4, 23.4, 23.5], equal_var=False)
  CHECK(welch_p_value(summary({27.5, 21.0, 19.0, 23.6, 17.0}), summary({27.1, 22.0, 20.8, 23.4, 23.4, 23.5})) ==
        doctest::Approx(0.42293002538244534).epsilon(1e-9));
}

TEST_CASE("a grid: results as a table and as files, nothing is trained twice, what is not whole is trained again") {
  const test::Workplace here("lab-grid");
  const test::Outcome first = lab(small_grid, "grid");
  REQUIRE_MESSAGE(first.code == 0, first.err);
  CHECK(first.out.find("flip_flop, token error %, lower is better") == 0);
  CHECK(has(first.out, "4 runs"));
  for (const char* name : {"report.html", "curves_flip_flop.svg", "scores.csv", "differences.csv",
           "cope-p_max=8.0/results.jsonl", "rope.1/run.json", "rope.1/metrics.csv"}) {
    CHECK_MESSAGE(fs::exists(fs::path("grid") / name), name);
  }
  std::istringstream runs(read_file("grid/runs.csv"));
  std::string line;
  std::getline(runs, line);
  CHECK(line == "task,test_set,scheme,seed,token_error_percent,sequence_error_percent,failure");
  int values = 0;
  for (; std::getline(runs, line); ++values) CHECK(std::count(line.begin(), line.end(), ',') == 6);
  CHECK(values == 2 * 2 * 3);
  const std::string scores = read_file("grid/scores.csv");
  const auto written = fs::last_write_time("grid/rope.1/weights.safetensors");
  CHECK(lab(small_grid, "grid").code == 0);
  CHECK(read_file("grid/scores.csv") == scores);
  CHECK(scores.find('(') == scores.find("(p_max"));           // one number in each cell
  CHECK(first.out.find("0.03 (0.06)") == std::string::npos);  // the paper's figure of another size
  CHECK(fs::last_write_time("grid/rope.1/weights.safetensors") == written);
  // A run that is not whole is trained again, to the same; one that is may lose its checkpoints and weights.
  const std::string results = "grid/rope.0/results.jsonl", all = read_file(results);
  fs::remove_all("grid/rope.1/checkpoints");
  fs::remove("grid/rope.1/weights.safetensors");
  for (const bool there : {true, false}) {
    fs::resize_file(results, all.size() / 2);
    if (!there) fs::remove(results);
    CHECK(lab(small_grid, "grid").code == 0);
    CHECK(read_file(results) == all);
  }
  CHECK(read_file("grid/scores.csv") == scores);
  CHECK_FALSE(fs::exists("grid/rope.1/weights.safetensors"));
  const std::string log = test::log_without_times("grid/rope.0");  // a resumed run could not write its beginning again
  for (const bool there : {true, false}) {
    if (there) fs::resize_file("grid/rope.0/metrics.jsonl", 0);
    if (!there) fs::remove("grid/rope.0/run.json");
    CHECK(has(lab(test::operator+(small_grid, {"--collect"}), "grid").err, "damaged: "));
    const test::Outcome anew = lab(small_grid, "grid");
    CHECK_MESSAGE(anew.code == 0, anew.err);
    CHECK(test::log_without_times("grid/rope.0") == log);
  }
  CHECK(read_file("grid/scores.csv") == scores);
}

TEST_CASE("lab: --maps shows the first seed of each scheme on one sequence, and why its gradients are zero") {
  const test::Workplace here("lab-maps");
  const std::vector<std::string> asked{"flip_flop", "--schemes", "cope(p_max=8),forgetting", "--seeds", "2", "--maps",
      "--quiet", "--set", "length=16 dim=8 layers=1 heads=2 steps=4 batch=2 test-sequences=2 look-every=2"};
  const test::Outcome outcome = lab(asked, "grid");
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const std::string page = read_file("grid/report.html");
  for (const char* text : {"cope(p_max=8): layer 0, head ", "gates, ", "dLoss/dgates, up to ",
           "forgetting: layer 0, head ", "dLoss/dbias, up to ", ": dLoss/dlog_kept", "Why are gradients zero?",
           "position.positions", ">step 0<", ">step 2<", ">step 4<", "table flat "})
    CHECK_MESSAGE(has(page, text), text);
  CHECK(lab({"flip_flop", "--maps", "--plan"}, "plan").code == 2);
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

TEST_CASE("settings: names and values, those with blanks in quotes") {
  const Settings expected{{"data", "my text.txt"}, {"steps", "3"}, {"include", ""}};
  CHECK(parse_settings("set", " data=\"my text.txt\"  steps=3\tinclude=''") == expected);
  for (const auto& [text, words] :
      {std::pair("steps=3 data=\"my text", "--set: data=\"my text given; a second \" at the end"),
          {"data='a'b", "a blank, or nothing, behind 'a' required"}, {"data=my text.txt", "in quotes"}})
    CHECK_THROWS_WITH_AS((void)parse_settings("set", text), doctest::Contains(words), InputError);
}

TEST_CASE("an axis sets its option wherever its scheme stands") {
  const test::Workplace here("lab-axes-paths");
  write_file("a,b.txt", "text"), write_file("16,64", "no value of an option that takes none");
  CHECK(parse_axes({"data=c.txt,a,b.txt"})[0].values == std::vector<std::string>{"c.txt", "a,b.txt"});
  CHECK(parse_axes({"length=16,64"})[0].values == std::vector<std::string>{"16", "64"});
  const Axis kernel = parse_axes({"cdape.kernel=1,3"})[0], p_max = parse_axes({"cope.p_max=16,64"})[0];
  CHECK(kernel.values == std::vector<std::string>{"1", "3"});
  CHECK(with_value("cdape(kerple)", kernel, "3") == "cdape(kerple, kernel=3)");
  CHECK(with_value("rope", kernel, "3") == std::nullopt);
  CHECK(with_value("cope + rope", p_max, "16") == "cope(p_max=16) + rope");
  CHECK(with_value("randomised(cope, length=64)", p_max, "16").value_or("") == "randomised(cope(p_max=16), length=64)");
  CHECK_THROWS_WITH_AS((void)with_value("cope(p_max=8)", p_max, "16"), doctest::Contains("one of both"), InputError);
  CHECK_THROWS_WITH_AS((void)with_value("cope", p_max, "-4"), doctest::Contains("p_max is '-4'"), InputError);
}

namespace {

// Two schemes, two lengths, two seeds; one run failed.
Grid made_up_grid() {
  Grid grid;
  grid.task = "flip_flop", grid.axes = parse_axes({"length=8,16"});
  double value = 1;
  for (const char* seed : {"0", "1"}) {
    for (const char* length : {"8", "16"}) {
      for (const char* scheme : {"cope", "rope"}) {
        GridCell cell;
        cell.task = grid.task, cell.scheme = scheme, cell.seed = seed[0] - '0';
        cell.place = {{"length", length}, {"scheme", scheme}, {"seed", seed}};
        cell.figures.scores.push_back(
            {"dense", {.measures = {{"token error %", value *= 2}}, .guesses = {{"a coin", 50.0}}}});
        grid.cells.push_back(std::move(cell));
      }
    }
  }
  grid.cells[7].failure = "exit code 1", grid.cells[7].figures.scores.clear();  // rope, 16, seed 1
  return grid;
}

using Rows = std::vector<std::vector<std::string>>;

}  // namespace

TEST_CASE("tables of two axes: means over seeds, one axis or another across, failed runs said") {
  const Grid grid = made_up_grid();
  const Outcome outcome(grid, "");
  CHECK(outcome.measure == "token error %");
  const auto by_length = cross_tables(outcome, "scheme", "length");
  REQUIRE(by_length.size() == 1);
  CHECK(by_length[0].title == "flip_flop, dense");
  CHECK(by_length[0].table.header() == std::vector<std::string>{"scheme", "length 8", "length 16"});
  // cope: 2 and 32 at 8, 8 and 128 at 16; rope: 4 and 64 at 8, 16 and nothing at 16.
  CHECK(by_length[0].table.rows() ==
        Rows{{"cope", "17.00 (21.21)", "68.00 (84.85)"}, {"rope", "34.00 (42.43)", "16.00, 1 failed"}});
  const auto by_seed = cross_tables(outcome, "length", "seed");
  REQUIRE(by_seed.size() == 2);
  CHECK(by_seed[1].title == "flip_flop, rope, dense");
  CHECK(by_seed[1].table.rows() == Rows{{"8", "4.00", "64.00"}, {"16", "16.00", "failed"}});
  Findings tables(grid.axes, false);
  tables.add(outcome);
  CHECK_FALSE(tables.tested);  // two seeds are too few
  CHECK(tables.scores.rows().size() == 4);
  CHECK(tables.differences.rows().size() == 4);  // pairs that differ in scheme or in length, not in both
  for (const auto& row : tables.differences.rows()) CHECK(row.back() == "-");
}

TEST_CASE("a grid over options of train and of schemes: each cell is the run that train makes of its options") {
  const test::Workplace here("lab-axes");
  const std::vector<std::string> arguments{"flip_flop", "--schemes", "cope,rope", "--vary", "cope.p_max=4,8", "--vary",
      "length=8,16", "--seeds", "1", "--quiet", "--set", "dim=8 layers=1 heads=2 steps=20 batch=4 test-sequences=20"};
  const test::Outcome first = lab(arguments, "axes");
  REQUIRE_MESSAGE(first.code == 0, first.err);
  CHECK(has(first.out, "flip_flop, length 16, dense\nscheme "));
  CHECK(has(first.out, "Welch's needs 3 seeds"));
  const auto page = json_of(read_file("axes/lab.json"));
  REQUIRE(page["runs"].size() == 6);  // rope is there once for each length
  (void)test::done(
      "train flip_flop --length 16 --dim 8 --layers 1 --heads 2 --steps 20 --batch 4 --test-sequences 20 --lr 1e-3 "
      "--scheme cope(p_max=8) --seed 0 --out axes/alone --quiet");
  CHECK(read_file("axes/alone/results.jsonl") == read_file("axes/length=16/cope-p_max=8.0/results.jsonl"));
  CHECK(read_file("axes/alone/weights.safetensors") == read_file("axes/length=16/cope-p_max=8.0/weights.safetensors"));
  CHECK(fs::exists("axes/over_length_flip_flop_dense.svg"));
  CHECK(fs::exists("axes/over_cope.p_max_flip_flop_dense.svg"));
}

TEST_CASE("a grid without schemes has those that the task's paper compares") {
  const test::Workplace here("lab-of_the_paper");
  const test::Outcome outcome = lab(
      {"counting", "--seeds", "1", "--quiet", "--set", "operations=4 block=16 dim=8 steps=2 batch=2 test-sequences=4"},
      "of_the_paper");
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  for (const char* scheme : {"absolute", "relative", "cope"})
    CHECK(fs::exists("of_the_paper/" + std::string(scheme) + ".0/results.jsonl"));
  CHECK_FALSE(fs::exists("of_the_paper/rope.0"));
}

TEST_CASE("a run that fails says why, the others go on, and the same command tries it again") {
  const test::Workplace here("lab-failing");
  const std::string place = "failing/cope.0/results.jsonl";
  fs::create_directories(place);  // where the run's results are to be written
  std::vector<std::string> arguments = small_grid;
  arguments[2] = "cope,rope", arguments[4] = "1";
  arguments.insert(arguments.end(), {"--rows", "scheme", "--columns", "test-set"});
  const test::Outcome failed = lab(arguments, "failing");
  CHECK(failed.code == 1);
  CHECK(has(failed.err, "failed: failing/cope.0: exit code "));
  CHECK(has(failed.err, "all of it: failing/cope.0/train.log"));
  CHECK(has(failed.err, "the same command tries them again"));
  CHECK(has(failed.out, "1 failed"));
  CHECK(has(failed.out, "cope    failed"));
  const auto runs = json_of(read_file("failing/lab.json"))["runs"];
  CHECK(runs[0]["failure"].get<std::string>().find("results.jsonl") != std::string::npos);
  CHECK(runs[1]["failure"].is_null());
  const auto rope = fs::last_write_time("failing/rope.0/weights.safetensors");
  fs::remove(place);
  const test::Outcome again = lab(arguments, "failing");
  REQUIRE_MESSAGE(again.code == 0, again.err);
  CHECK(again.out.find("failed") == std::string::npos);
  CHECK(fs::last_write_time("failing/rope.0/weights.safetensors") == rope);
}

TEST_CASE("text: perplexities by length, an option of schemes, as many tokens at every length") {
  const test::Workplace here("lab-texts");
  std::ofstream text("lab_text.txt");
  for (int line = 0; line < 2000; ++line) text << "line " << line * line << " of a text that can be learned\n";
  text.close();
  const std::string sizes =
      "data=lab_text.txt dim=16 layers=1 heads=2 length=16 batch=8 steps=20 last=16 evaluate-to=2 evaluation-windows=4 "
      "validation-windows=4 validate-every=10";
  const test::Outcome kernels = lab({"lm", "--schemes", "rope,cdape(kerple)", "--vary", "cdape.kernel=1,3", "--seeds",
                                        "1", "--quiet", "--set", sizes},
      "texts");
  REQUIRE_MESSAGE(kernels.code == 0, kernels.err);
  const auto runs = json_of(read_file("texts/lab.json"))["runs"];
  REQUIRE(runs.size() == 3);
  CHECK(runs[2]["scheme"] == "cdape(kerple, kernel=3)");
  CHECK(runs[2]["place"]["scheme"] == "cdape(kerple)");
  const auto own = json_of(read_file("texts/cdape-kerple,kernel=3.0/lengths.json"))["lengths"];
  for (std::size_t k = 0; k < 2; ++k) {
    CHECK(runs[2]["results"][k + 1]["test_set"] == to_text("length ", own[k]["length"].get<int>()));
    CHECK(runs[2]["results"][k + 1]["measures"]["perplexity"] == own[k]["perplexity"]);
    CHECK(kernels.out.find(fixed(own[k]["perplexity"].get<double>(), 3)) != std::string::npos);
  }
  CHECK(fs::exists("texts/validation_lm.svg"));
  CHECK(fs::exists("texts/over_lengths_lm.svg"));
  const test::Outcome lengths = lab(
      {"lm", "--schemes", "rope", "--vary", "length=16,32", "--same-tokens", "--seeds", "1", "--quiet", "--set", sizes},
      "lengths");
  REQUIRE_MESSAGE(lengths.code == 0, lengths.err);
  const auto by_length = json_of(read_file("lengths/lab.json"))["runs"];
  CHECK(by_length[0]["sequences_per_step"] == 8);
  CHECK(by_length[1]["sequences_per_step"] == 4);
}

TEST_CASE("a grid whose reader goes away ends well, and writes nothing for a terminal that is none") {
  const test::Workplace here("lab-pipe");
  const test::Outcome cut = test::shell("set -o pipefail; " + test::program_folder() +
                                        "/whence lab flip_flop --schemes rope --seeds 1 --out out --set "
                                        "'length=8 dim=8 layers=1 heads=2 steps=5 batch=2 test-sequences=4' | head -1");
  CHECK_MESSAGE(cut.code == 0, cut.err);
  CHECK(cut.out.starts_with("flip_flop, "));
  CHECK(fs::exists("out/report.html"));
  CHECK(cut.err.find_first_of("\x1b\r") == std::string::npos);
}

TEST_CASE("a grid of a thousand million steps says no negative time, and none that is not known") {
  const test::Workplace here("lab-long");
  test::RunningProgram running(
      "lab flip_flop --schemes rope --seeds 1 --out long --set "
      "'length=8 dim=8 layers=1 heads=2 steps=1000000000 batch=2 test-sequences=4 log-every=20'");
  CHECK(test::soon([] { return !test::text_of("long/rope.0/metrics.jsonl").empty(); }));
  usleep(600000);  // the laboratory looks at its runs five times a second
  running.signal(SIGINT);
  const test::Outcome stopped = running.finish();
  CHECK(stopped.code == 130);
  CHECK_MESSAGE(has(stopped.err, "/1000000000 0 %"), stopped.err);
  for (const char* wrong : {"nan", "inf", "left -", "elapsed -"})
    CHECK_MESSAGE(stopped.err.find(wrong) == std::string::npos, stopped.err);
}

// The papers' tables: all of them listed, their grids accepted, verdicts on made-up numbers, and one small table trained.
#include <doctest/doctest.h>

#include <limits>
#include <set>

#include "examples/papers/compare.h"
#include "tests/program_run.h"
#include "tests/scratch.h"

using namespace whence;
using papers::Kind;
using papers::Verdict;

namespace {

test::Outcome reproduce(const std::vector<std::string>& arguments, const test::Scratch& scratch) {
  return test::RunningProgram("reproduce", arguments, scratch / "log").finish();
}

}  // namespace

TEST_CASE("reproduce: every table has a name of its own, what it asks, and how it is had") {
  std::set<std::string> names;
  for (const papers::PaperTable& table : papers::all_tables()) {
    CAPTURE(table.name);
    CHECK(names.insert(table.name).second);
    CHECK_FALSE(table.what.empty());
    CHECK_FALSE(table.place.empty());
    CHECK_FALSE(papers::how(table).empty());
    CHECK((table.kind == Kind::grid) == !table.presets.empty());
    CHECK((table.kind == Kind::grid || table.kind == Kind::not_ours) == table.commands.empty());
    if (table.kind == Kind::not_ours) CHECK_FALSE(table.note.empty());
    for (const std::string& command : table.commands) CHECK(command.starts_with("whence "));
  }
  CHECK(names.size() == 54);
  const test::Scratch scratch("reproduce-list");
  const std::string list = reproduce({"--list"}, scratch).out;
  for (const std::string& name : names) CHECK_MESSAGE(list.find("\n" + name + " ") != std::string::npos, name);
}

TEST_CASE("reproduce: every preset of every grid is accepted, and nothing is written") {
  const test::Scratch scratch("reproduce-presets");
  std::ofstream text(scratch / "text.txt");
  for (int line = 0; line < 20000; ++line) text << "line " << line << " of a text that is long enough\n";
  text.close();
  for (const papers::PaperTable& table : papers::all_tables()) {
    for (const papers::Preset& preset : table.presets) {
      std::vector<std::string> arguments{
          table.name, "--plan", "--preset", preset.name, "--out", scratch / "out", "--seeds", "2"};
      if (table.grid.task == "lm") arguments.insert(arguments.end(), {"--data", scratch / "text.txt"});
      const test::Outcome outcome = reproduce(arguments, scratch);
      CHECK_MESSAGE(outcome.code == 0, table.name << ", " << preset.name << ": " << outcome.err);
      CHECK(outcome.out.find("whence lab " + table.grid.task) != std::string::npos);
      CHECK_FALSE(std::filesystem::exists(scratch / "out"));
    }
  }
}

TEST_CASE("reproduce: verdicts hold, do not, or are not decided") {
  CHECK(papers::decide({1.0, 1.1, 0.9}, {5.0, 5.2, 4.9}).verdict == Verdict::holds);
  CHECK(papers::decide({5.0, 5.2, 4.9}, {1.0, 1.1, 0.9}).verdict == Verdict::does_not);
  CHECK(papers::decide({1.0, 3.0, 5.0}, {2.0, 4.0, 5.5}).verdict == Verdict::not_decided);
  CHECK(papers::decide({1.0, 3.0, 5.0}, {2.0, 4.0, 5.5}).test.starts_with("Welch's test, 3 and 3 seeds: p = 0."));
  const papers::Decision few = papers::decide({1.0, 1.1}, {5.0, 5.2});
  CHECK(few.verdict == Verdict::not_decided);
  CHECK(few.test.starts_with("2 seeds"));
  CHECK(papers::decide({}, {}).verdict == Verdict::not_decided);
  CHECK(papers::decide({0, 0, 0}, {100, 100, 100}).verdict == Verdict::holds);
  CHECK(papers::decide({100, 100, 100}, {0, 0, 0}).verdict == Verdict::does_not);
  CHECK(papers::decide({0, 0, 0}, {0, 0, 0}).verdict == Verdict::not_decided);
  CHECK(papers::decide({1, 2, std::numeric_limits<double>::quiet_NaN()}, {5, 6, 7}).verdict == Verdict::not_decided);
}

TEST_CASE("reproduce: what cannot be run is refused before anything trains") {
  const test::Scratch scratch("reproduce-refused");
  const std::string out = scratch / "out";
  const auto refusal = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--out", out});
    const test::Outcome outcome = reproduce(arguments, scratch);
    CHECK_FALSE(std::filesystem::exists(out));
    return outcome.code == 2 ? outcome.err : "exit code " + std::to_string(outcome.code);
  };
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{{{}, "one table or figure required"},
      {{"cope/tabel3"}, "near: cope/table3\n"}, {{"cope/table2"}, "cope/table2-flip_flop, cope/table2-selective_copy"},
      {{"nothing at all"}, "whence reproduce --list lists them"}, {{"cope/table8"}, "a text file of yours required"},
      {{"cope/table8", "--data", scratch / "none.txt"}, "none.txt"},
      {{"cope/table3", "--data", scratch / "none.txt"}, "a table of language models; leave it out"},
      {{"cope/table3", "--set", "variables=2"}, "--vary has it"}, {{"cope/table3", "--set", "stepz=2"}, "stepz"},
      {{"cope/table3", "--set", "dim=65"}, "dim"}, {{"cope/figure4"}, "a table that is trained here"}};
  for (const auto& [arguments, words] : cases) {
    const std::string said = refusal(arguments);
    CHECK_MESSAGE(said.find(words) != std::string::npos, said);
  }
}

TEST_CASE("reproduce: of other kinds it says what to type") {
  const test::Scratch scratch("reproduce-typed");
  CHECK(reproduce({"cope/figure4"}, scratch).out.find("whence look RUN --text FILE --figure cope/4\n") !=
        std::string::npos);
  CHECK(reproduce({"dape/figure9"}, scratch).out.starts_with("dape/figure7-21: "));
  CHECK(reproduce({"dape-v2/table8"}, scratch).out.find("  whence bench table\n") != std::string::npos);
  CHECK(reproduce({"dape-v2/table4"}, scratch).out.find("  whence models --plan neox-2.7b") != std::string::npos);
  CHECK(reproduce({"cope/table1"}, scratch).out.find("not ours: ") != std::string::npos);
}

TEST_CASE("reproduce: a table trained, beside the paper's, with verdicts, and nothing trained twice") {
  const test::Scratch scratch("reproduce-trained");
  const std::vector<std::string> arguments{"cope/table2-flip_flop", "--seeds", "3", "--jobs", "2", "--quiet", "--out",
      scratch / "out", "--set", "length=8 dim=8 layers=1 heads=2 steps=20 batch=4 test-sequences=20"};
  const test::Outcome first = reproduce(arguments, scratch);
  REQUIRE_MESSAGE(first.code == 0, first.err);
  const std::string beside = test::text_of(scratch / "out/beside_paper.csv");
  CHECK(beside.starts_with("method,column,\"ours, mean (s.d.)\",seeds,paper\nAbsolute PE,In-dist,"));
  CHECK(beside.find(",3,21.7 (7.9)\n") != std::string::npos);
  CHECK(beside.find(",3,0.03 (0.06)\n") != std::string::npos);
  const std::string verdicts = test::text_of(scratch / "out/verdicts.csv");
  CHECK(verdicts.find("CoPE better than RoPE,OOD,") != std::string::npos);
  CHECK(verdicts.find("seeds") != std::string::npos);
  const auto weights = scratch.folder / "out" / "rope.1" / "weights.safetensors";
  const auto written = std::filesystem::last_write_time(weights);
  const test::Outcome again = reproduce(arguments, scratch);
  CHECK(again.out == first.out);
  CHECK(std::filesystem::last_write_time(weights) == written);
}

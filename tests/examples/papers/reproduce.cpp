// The papers' tables: all of them listed, their grids accepted, verdicts on made-up numbers, and one small table
// trained.
#include <doctest/doctest.h>

#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "examples/whence/cli/text.h"
#include "examples/whence/papers/record.h"
#include "tensor/error.h"
#include "tests/support/programs.h"

using namespace whence;
using papers::Kind;
using papers::Verdict;
using test::has;

namespace {

test::Outcome reproduce(const std::vector<std::string>& arguments, const test::Scratch& scratch) {
  return test::RunningProgram("reproduce", arguments, scratch / "log").finish();
}

}  // namespace

TEST_CASE("reproduce: every table has a name of its own, what it asks, and how it is had") {
  std::set<std::string> names;
  for (const papers::PaperTable& table : papers::all_papers().tables) {
    CAPTURE(table.name);
    CHECK(names.insert(table.name).second);
    CHECK(table.methods.empty() == table.columns.empty());
    if (table.kind == Kind::compared) CHECK(table.presets.front().name == "mini");
    if (table.kind == Kind::not_ours) CHECK_FALSE(table.note.empty());
    for (const papers::Claim& claim : table.claims) CHECK(claim.better != claim.worse);
  }
  CHECK(names.size() == 54 + 1);  // those of the papers, and what the Chomsky tasks need
  const test::Scratch scratch("reproduce-list");
  const std::string list = reproduce({"--list"}, scratch).out;
  for (const std::string& name : names) CHECK_MESSAGE(has(list, "\n" + name + " "), name);
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line);) CHECK_MESSAGE(display_width(line) <= 120, line);
  CHECK(list.find("unknown") == list.find("unknown cost"));
}

TEST_CASE(
    "papers: a table's text is read strictly, and what is wrong has the file's name, the line and what is expected") {
  const std::string begin = "table a/b\n  what w\n  place p\n  task flip_flop\n  mini.set steps=3\n";
  const std::string rows =
      "  | | scheme | In |\n  | set | | sparse |\n  | A | rope | 6.8 (6.9) |\n  | B | cope | - |\n";
  papers::Papers good;
  papers::read_tables("x.table", begin + rows + "  better A > B | *\n", good);
  CHECK(good.tables.at(0).printed.size() == 1);
  CHECK(good.tables[0].printed[0].deviation == 6.9);
  CHECK(good.tables[0].claims.at(0).column == "In");
  CHECK(good.tables[0].schemes == std::vector<std::string>{"rope", "cope"});
  const std::vector<std::pair<std::string, std::string>> bad{{begin + "  whit x\n", "line 6: \"whit\" found; a field"},
      {"tabel a\n", "line 1: \"tabel\" found; paper, let, sizes or table"}, {"  what w\n", "without indentation"},
      {begin + "  note $none\n", "$none found; a name of `let`"}, {begin + "  sizes none\n", "a name of `sizes`"},
      {begin + "  mini.sets x\n", "of a preset required"}, {begin + "  mini.seeds x\n", "a whole number"},
      {begin + rows + "  better A > C | In\n", "line 10: \"C\" found; a method of the table"},
      {begin + rows + "  better A > B | Out\n", "a column of the table"},
      {begin + rows + "  | C | t5 | 1 | 2 |\n", "2 figures"},
      {begin + rows + "  | C | t5 | six |\n", "a figure, as 6.8 (6.9)"},
      {begin + "  | | scheme | In\n", "a | at the end"},
      {begin + rows + "  | C | t5 | of X in a/b |\n", "a method of that table"},
      {"table a\n  what w\n", "what and place"}, {begin + rows + "  better A > B | In\n" + begin, "a second table"}};
  for (const auto& [text, words] : bad) {
    papers::Papers papers;
    std::string said;
    try {
      papers::read_tables("x.table", text, papers);
    } catch (const FileError& error) { said = error.what(); }
    CHECK(said.starts_with("x.table: line "));
    CHECK_MESSAGE(has(said, std::string(words)), said);
  }
}

TEST_CASE("reproduce: every preset of every table is accepted, and nothing is written") {
  const test::Scratch scratch("reproduce-presets");
  std::ofstream text(scratch / "text.txt");
  for (int line = 0; line < 20000; ++line) text << "line " << line << " of a text that is long enough\n";
  text.close();
  for (const char* preset : {"mini", "small", "paper"}) {
    const test::Outcome outcome = reproduce({"all", "--plan", "--preset", preset, "--out", scratch / "out", "--data",
                                                scratch / "text.txt", "--code", scratch / "text.txt", "--seeds", "2"},
        scratch);
    CHECK_MESSAGE(outcome.code == 0, preset << ": " << outcome.err);
    for (const papers::PaperTable& table : papers::all_papers().tables)
      if (table.kind == Kind::compared && std::string(preset) == "mini")
        CHECK_MESSAGE(has(outcome.out, table.name + ": "), table.name);
    CHECK_FALSE(std::filesystem::exists(scratch / "out"));
  }
}

TEST_CASE("reproduce: runs that two tables share are one") {
  const test::Scratch scratch("reproduce-shared");
  const auto pool_after = [&](const std::string& name) {
    const test::Outcome outcome =
        reproduce({name, "--seeds", "1", "--jobs", "2", "--quiet", "--out", scratch / "out", "--set",
                      "operations=4 block=16 dim=8 steps=4 batch=2 test-sequences=4"},
            scratch);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    std::map<std::string, std::filesystem::file_time_type> found;
    for (const auto& entry : std::filesystem::directory_iterator(scratch / "out/runs/counting"))
      found[entry.path().filename()] = std::filesystem::last_write_time(entry.path() / "weights.safetensors");
    return found;
  };
  const auto variables = pool_after("cope/table3");
  CHECK(variables.size() == 9);
  CHECK(pool_after("cope/table4") == variables);
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

TEST_CASE("reproduce: a higher Delta-P is better, a lower perplexity is, and what no run has is not decided") {
  const std::vector<double> low{1.0, 1.1, 0.9}, high{5.0, 5.2, 4.9};
  const auto verdict_of = [&](papers::PaperTable table, const std::vector<double>& better) {
    const papers::Claim claim = table.claims.at(0);
    papers::Measurement found{"", 2, {{claim.worse, claim.column, better == low ? high : low}}};
    if (!better.empty()) found.all.push_back({claim.better, claim.column, better});
    return judged(table, table.presets.at(0), found).at(0).decision.verdict;
  };
  const papers::PaperTable delta = papers::find_table("dape-v2/table2"), perplexity = papers::find_table("dape/table7");
  CHECK(verdict_of(delta, high) == Verdict::holds);
  CHECK(verdict_of(delta, low) == Verdict::does_not);
  CHECK(verdict_of(perplexity, high) == Verdict::does_not);
  CHECK(verdict_of(perplexity, low) == Verdict::holds);
  CHECK(verdict_of(perplexity, {}) == Verdict::not_decided);
}

TEST_CASE("reproduce: of a table without training it runs the commands") {
  const test::Scratch scratch("reproduce-commands");
  const test::Outcome outcome =
      reproduce({"dape-v2/proposition2", "--out", scratch / "out", "--record", scratch / "kept"}, scratch);
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(has(outcome.out, "\n$ whence recall"));
  CHECK(has(test::text_of(scratch / "kept/dape-v2-proposition2-mini.md"), "\n$ whence recall"));
  CHECK(papers::find_table("dape/figure9").name == "dape/figure7-21");
}

TEST_CASE("reproduce: a table trained, beside the paper's, with verdicts, recorded, and nothing trained twice") {
  const test::Scratch scratch("reproduce-trained");
  const std::vector<std::string> arguments{"cope/table2-flip_flop", "--jobs", "2", "--quiet", "--out", scratch / "out",
      "--set", "length=8 dim=8 layers=1 heads=2 steps=20 batch=4 test-sequences=20"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), arguments.begin(), arguments.end());
    return reproduce(more, scratch);
  };
  const std::string kept = scratch / "kept", file = kept + "/recorded.txt";
  const test::Outcome first = with({"--record", kept});
  REQUIRE_MESSAGE(first.code == 0, first.err);
  const std::string folder = scratch / "out/cope/table2-flip_flop-mini";
  const std::string beside = test::text_of(folder + "/beside_paper.csv");
  CHECK(beside.starts_with("method,column,\"ours, mean (s.d.)\",seeds,paper\nAbsolute PE,In-dist,"));
  CHECK(has(beside, ",5,21.7 (7.9)\n"));
  CHECK(has(beside, ",5,0.03 (0.06)\n"));
  CHECK(has(test::text_of(folder + "/verdicts.csv"), "CoPE better than RoPE,OOD,"));
  CHECK(has(test::text_of(kept + "/README.md"), "| cope/table2-flip_flop | "));
  CHECK(has(test::text_of(kept + "/cope-table2-flip_flop-mini.md"), "length=8"));
  const std::string record = test::text_of(file);
  CHECK(papers::text_of(papers::read_records(file, record)) == record);
  CHECK(has(record, " flip_flop cope\n"));

  const auto checked = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--check", "--records", file});
    return with(more);
  };
  CHECK(has(checked({}).out, " numbers are as recorded on "));
  CHECK(has(checked({"--row", "CoPE"}).out, "\n12 numbers are as recorded on "));
  const auto stale = [&] { return reproduce({"--stale", "--records", file, "--out", scratch / "stale"}, scratch).out; };
  CHECK(stale() == "1 results recorded, 0 that this program would not give\n");
  CHECK_FALSE(std::filesystem::exists(scratch / "stale/short_trainings"));
  const auto changed = [&](const std::string& what, const std::string& other) {
    std::string text = record;
    const std::size_t at = text.find(what);
    REQUIRE_MESSAGE(at != std::string::npos, what);
    std::ofstream(file) << text.replace(at, what.size(), other);
  };
  // The number of one seed made another: the same vectors cannot have given it.
  changed("| Absolute PE | In-dist | ", "| Absolute PE | In-dist | 1");
  const test::Outcome differs = checked({});
  CHECK(differs.code == 1);
  CHECK(has(differs.out, "differs: Absolute PE, In-dist: "));
  // Other vectors: said, and no failure.
  std::string elsewhere = test::text_of(file);
  const std::size_t vectors = elsewhere.find("vectors ") + 8;
  std::ofstream(file) << elsewhere.replace(vectors, elsewhere.find('\n', vectors) - vectors, "of another kind");
  CHECK(checked({}).code == 0);
  CHECK(has(stale(), "1 of which it cannot tell"));
  // Other bits of a short training, and other options.
  const std::size_t bits = record.find("bits ") + 5;
  changed(record.substr(bits, 16), "0123456789abcdef");
  CHECK(stale().starts_with("STALE: cope/table2-flip_flop, mini, of 20"));
  changed(" --seeds 5", " --seeds 6");
  CHECK(has(stale(), "its preset has other options now"));
  changed("date ", "preset \x1b[2J\n  date ");
  CHECK(reproduce({"--stale", "--records", file}, scratch).code == 3);
  changed("vectors ", "vectors \x1b[2J");
  CHECK(stale().find('\x1b') == std::string::npos);
  CHECK(checked({}).out.find('\x1b') == std::string::npos);
  changed("  bits ", "  bits \x1b[2J");
  CHECK(stale().find('\x1b') == std::string::npos);
  std::ofstream(file) << record;

  // A run of the pool that was damaged since ends anew.
  const auto run = std::filesystem::directory_iterator(scratch / "out/runs/flip_flop")->path();
  const std::string results = (run / "results.jsonl").string(), whole = test::text_of(results);
  std::ofstream(results) << whole.substr(0, whole.find('\n') + 1);
  CHECK(with({}).code == 0);
  CHECK(test::text_of(results) == whole);
}

TEST_CASE("reproduce: a table on a text of the user's is recorded with its hash, and told fresh without it") {
  const test::Scratch scratch("reproduce-text");
  std::ofstream text(scratch / "code.txt");
  for (int line = 0; line < 2000; ++line) text << "line " << line * line << " of a text that can be learned\n";
  text.close();
  const test::Outcome outcome =
      reproduce({"cope/table5-code", "--code", scratch / "code.txt", "--seeds", "1", "--quiet", "--out",
                    scratch / "out", "--record", scratch / "kept", "--set",
                    "dim=8 layers=1 heads=2 length=16 batch=2 steps=2 last=16 evaluate-to=2 evaluation-windows=2 "
                    "validation-windows=2"},
          scratch);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const std::string file = scratch / "kept/recorded.txt";
  CHECK(has(test::text_of(file), "\n  text code.txt, SHA-256 "));
  CHECK(reproduce({"--stale", "--records", file, "--out", scratch / "out"}, scratch).out ==
        "1 results recorded, 0 that this program would not give\n");
}

TEST_CASE(
    "reproduce: what is recorded is read strictly, and what is wrong has the file's name, the line and what is "
    "expected") {
  CHECK(papers::text_of(papers::recorded()) ==
        test::text_of(test::source_folder() + "/examples/whence/papers/recorded.txt"));
  CHECK(papers::summary_page(papers::recorded()) ==
        test::text_of(test::source_folder() + "/examples/whence/papers/README.md"));
  const std::vector<std::pair<std::string, std::string>> bad{
      {"rekord a b\n", "line 1: rekord found; record TABLE PRESET"}, {"  date x\n", "before it"},
      {"record a b\n  seeds five\n", "line 2: \"five\" found; a number"},
      {"record a b\n  dote x\n", "dote found; a field of a record"}, {"record a b\n  | m | 1 2 |\n", "2 cells found"},
      {"record a b\n  | m | c | 1 x |\n", "\"x\" found; a number"}, {"record a b\n  | m | c | 1\n", "a | at the end"}};
  for (const auto& [text, words] : bad)
    CHECK_THROWS_WITH_AS((void)papers::read_records("r.txt", text), doctest::Contains(words.c_str()), FileError);
  CHECK_THROWS_AS((void)papers::read_records("r.txt", std::string(300000, '[')), FileError);
  // A seed that ended without a number.
  papers::Record record{.table = "cope/table3", .preset = "mini"};
  record.measurement.all = {{"CoPE", "1 var", {1, std::numeric_limits<double>::quiet_NaN()}}};
  const std::string text = papers::text_of({record});
  CHECK(papers::text_of(papers::read_records("r.txt", text)) == text);
}

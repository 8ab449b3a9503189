// The papers' tables: all of them listed, their grids accepted, verdicts on made-up numbers, and one small table
// trained.
#include <doctest/doctest.h>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "examples/whence/cli/text.h"
#include "examples/whence/papers/record.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using papers::Kind;
using papers::Verdict;
using namespace whence::test;

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
  const std::string list = done("reproduce --list").out;
  for (const std::string& name : names) CHECK_MESSAGE(has(list, "\n" + name + " "), name);
  for (const std::string& line : lines_of(list)) CHECK_MESSAGE(display_width(line) <= 120, line);
  CHECK(list.find("unknown") == list.find("unknown cost"));
}

TEST_CASE("papers: a table's text is read strictly; what is wrong has file, line and what is expected") {
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
    const std::string said = error_text([&, &source = text] { papers::read_tables("x.table", source, papers); });
    CHECK(said.starts_with("x.table: line "));
    CHECK_MESSAGE(has(said, words), said);
  }
}

TEST_CASE("reproduce: every preset of every table is accepted, and nothing is written") {
  const Scratch scratch("reproduce-presets");
  const std::string text = scratch / "text.txt", out = scratch / "out";
  std::ofstream file(text);
  for (int line = 0; line < 20000; ++line) file << "line " << line << " of a text that is long enough\n";
  file.close();
  for (const std::string preset : {"mini", "small", "paper"}) {
    const Outcome plan = done(
        "reproduce all --plan --seeds 2 --preset " + preset + " --data " + text + " --code " + text + " --out " + out);
    for (const papers::PaperTable& table : papers::all_papers().tables)
      if (table.kind == Kind::compared && preset == "mini") CHECK_MESSAGE(has(plan.out, table.name + ": "), table.name);
    CHECK_FALSE(std::filesystem::exists(out));
  }
}

TEST_CASE("reproduce: runs that two tables share are one") {
  const Scratch scratch("reproduce-shared");
  const auto pool_after = [&](const std::string& name) {
    (void)done(
        "reproduce " + name +
        " --seeds 1 --jobs 2 --quiet --set 'operations=4 block=16 dim=8 steps=4 batch=2 test-sequences=4' --out " +
        scratch / "out");
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
  using Numbers = std::vector<double>;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [better, worse, verdict] : std::vector<std::tuple<Numbers, Numbers, Verdict>>{
           {{1.0, 1.1, 0.9}, {5.0, 5.2, 4.9}, Verdict::holds}, {{5.0, 5.2, 4.9}, {1.0, 1.1, 0.9}, Verdict::does_not},
           {{1.0, 3.0, 5.0}, {2.0, 4.0, 5.5}, Verdict::not_decided}, {{}, {}, Verdict::not_decided},
           {{1.0, 1.1}, {5.0, 5.2}, Verdict::not_decided}, {{0, 0, 0}, {100, 100, 100}, Verdict::holds},
           {{100, 100, 100}, {0, 0, 0}, Verdict::does_not}, {{0, 0, 0}, {0, 0, 0}, Verdict::not_decided},
           {{1, 2, nan}, {5, 6, 7}, Verdict::not_decided}})
    CHECK(papers::decide(better, worse).verdict == verdict);
  CHECK(papers::decide({1.0, 3.0, 5.0}, {2.0, 4.0, 5.5}).test.starts_with("Welch's test, 3 and 3 seeds: p = 0."));
  CHECK(papers::decide({1.0, 1.1}, {5.0, 5.2}).test.starts_with("2 seeds"));
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
  const Scratch scratch("reproduce-commands");
  const Outcome outcome =
      done("reproduce cope/counting-data --record " + scratch / "kept" + " --out " + scratch / "out");
  CHECK(has(outcome.out, "\n$ whence train counting --dump 3\n"));
  CHECK(has(text_of(scratch / "kept/cope-counting-data-mini.md"), "\n$ whence train counting --dump 3\n"));
}

TEST_CASE("reproduce: a table trained, beside the paper's, with verdicts, recorded, and nothing trained twice") {
  const Scratch scratch("reproduce-trained");
  const std::string kept = scratch / "kept", file = kept + "/recorded.txt",
                    command =
                        "reproduce cope/table2-flip_flop --jobs 2 --quiet --set 'length=8 dim=8 layers=1 heads=2 "
                        "steps=20 batch=4 test-sequences=20' --out " +
                        scratch / "out";
  (void)done(command + " --record " + kept);
  const std::string folder = scratch / "out/cope/table2-flip_flop-mini";
  const std::string beside = text_of(folder + "/beside_paper.csv");
  CHECK(beside.starts_with("method,column,\"ours, mean (s.d.)\",seeds,paper\nAbsolute PE,In-dist,"));
  CHECK(has(beside, ",5,21.7 (7.9)\n"));
  CHECK(has(beside, ",5,0.03 (0.06)\n"));
  CHECK(has(text_of(folder + "/verdicts.csv"), "CoPE better than RoPE,OOD,"));
  CHECK(has(text_of(kept + "/README.md"), "| cope/table2-flip_flop | "));
  CHECK(has(text_of(kept + "/cope-table2-flip_flop-mini.md"), "length=8"));
  const std::string record = text_of(file);
  CHECK(papers::text_of(papers::read_records(file, record)) == record);
  CHECK(has(record, " flip_flop cope\n"));

  const std::string check = command + " --check --records " + file, look = "reproduce --stale --records " + file;
  CHECK(has(ran(check).out, " numbers are as recorded on "));
  CHECK(has(ran(check + " --row CoPE").out, "\n12 numbers are as recorded on "));
  const auto stale = [&] { return ran(look + " --out " + scratch / "stale").out; };
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
  const Outcome differs = ran(check);
  CHECK(differs.code == 1);
  CHECK(has(differs.out, "differs: Absolute PE, In-dist: "));
  // Other vectors: said, and no failure.
  std::string elsewhere = text_of(file);
  const std::size_t vectors = elsewhere.find("vectors ") + 8;
  std::ofstream(file) << elsewhere.replace(vectors, elsewhere.find('\n', vectors) - vectors, "of another kind");
  (void)done(check);
  CHECK(has(stale(), "1 of which it cannot tell"));
  // Other bits of a short training, and other options.
  const std::size_t bits = record.find("bits ") + 5;
  changed(record.substr(bits, 16), "0123456789abcdef");
  CHECK(stale().starts_with("STALE: cope/table2-flip_flop, mini, of 20"));
  changed(" --seeds 5", " --seeds 6");
  CHECK(has(stale(), "its preset has other options now"));
  changed("date ", "preset \x1b[2J\n  date ");
  CHECK(ran(look).code == 3);
  changed("vectors ", "vectors \x1b[2J");
  CHECK_FALSE(has(stale(), "\x1b"));
  CHECK_FALSE(has(ran(check).out, "\x1b"));
  changed("  bits ", "  bits \x1b[2J");
  CHECK_FALSE(has(stale(), "\x1b"));
  std::ofstream(file) << record;

  // A run of the pool that was damaged since ends anew.
  const auto run = std::filesystem::directory_iterator(scratch / "out/runs/flip_flop")->path();
  const std::string results = (run / "results.jsonl").string(), whole = text_of(results);
  std::ofstream(results) << whole.substr(0, whole.find('\n') + 1);
  (void)done(command);
  CHECK(text_of(results) == whole);
}

TEST_CASE("reproduce: a table on a text of the user's is recorded with its hash, and told fresh without it") {
  const Scratch scratch("reproduce-text");
  std::ofstream text(scratch / "code.txt");
  for (int line = 0; line < 2000; ++line) text << "line " << line * line << " of a text that can be learned\n";
  text.close();
  (void)done(
      "reproduce cope/table5-code --seeds 1 --quiet --set 'dim=8 layers=1 heads=2 length=16 batch=2 steps=2 last=16 "
      "evaluate-to=2 evaluation-windows=2 validation-windows=2' --code " +
      scratch / "code.txt" + " --record " + scratch / "kept" + " --out " + scratch / "out");
  const std::string file = scratch / "kept/recorded.txt";
  CHECK(has(text_of(file), "\n  text code.txt, SHA-256 "));
  CHECK(ran("reproduce --stale --records " + file + " --out " + scratch / "out").out ==
        "1 results recorded, 0 that this program would not give\n");
}

TEST_CASE("reproduce: what is recorded is read strictly; what is wrong has file, line and what is expected") {
  CHECK(papers::text_of(papers::recorded()) == text_of(source_folder() + "/examples/whence/papers/recorded.txt"));
  CHECK(papers::summary_page(papers::recorded()) == text_of(source_folder() + "/examples/whence/papers/README.md"));
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

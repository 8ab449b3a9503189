// Tasks from JSON lines: what is read, cut, refused; and such a task trained, resumed, looked at and swept.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "examples/whence/tasks/task.h"
#include "nn/io/files.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::tasks;
using whence::test::has;
using whence::test::Outcome;
using whence::test::Scratch;

namespace {

using Words = std::vector<std::string>;

std::string line_of(const std::string& context, const std::string& question, const std::string& answer) {
  return nlohmann::json{{"context", context}, {"question", question}, {"answer", answer}}.dump() + '\n';
}

// Which of two letters is asked for, in all orders of four letters: 24 contexts, 4 questions.
std::string letters() {
  std::string order = "abcd", lines;
  do {
    std::string context;
    for (const char c : order) context += std::string(1, c) + ' ';
    for (int place = 0; place < 4; ++place)
      lines += line_of(context, std::to_string(place), order.substr(static_cast<std::size_t>(place), 1));
  } while (std::next_permutation(order.begin(), order.end()));
  return lines;
}

std::string text_of(const Task& task, const Tokens& tokens) {
  std::string text;
  for (const std::int64_t token : tokens) text += token == no_target ? "." : task.text(token);
  return text;
}

// The refusal of such a training file, of three lines that are good and these.
std::string refusal(const Scratch& scratch, const std::string& lines, Words more = {}) {
  write_file(
      scratch / "bad.jsonl", line_of("a b", "c?", "a") + line_of("b a", "c?", "b") + line_of("a", "", "b") + lines);
  more.insert(more.end(), {"--data", scratch / "bad.jsonl"});
  return test::error_text([&] { (void)make_task("jsonl", more); });
}

}  // namespace

TEST_CASE("a task from JSON lines: the loss is on the answer alone, behind a mark, whatever the symbols") {
  const Scratch scratch("jsonl-symbols");
  const std::string lines = line_of("Ada is in: the h\u00e4ll", "Where?", "h\u00e4ll two");
  write_file(scratch / "data.jsonl", lines + lines + lines);
  struct Case {
    const char *symbols, *inputs, *targets;
    std::size_t answer;
  };
  for (const Case& each : {Case{"words", "Ada is in : the h\u00e4ll Where ? | h\u00e4ll ", "........h\u00e4ll two ", 2},
           Case{"characters", "Ada is in: the h\u00e4ll Where?|h\u00e4ll tw", "..........................h\u00e4ll two",
               8},
           Case{"bytes", "Ada is in: the h\\xc3\\xa4ll Where?|h\\xc3\\xa4ll tw",
               "...........................h\\xc3\\xa4ll two", 9}}) {
    CAPTURE(each.symbols);
    const auto task = make_task("jsonl", {"--data", scratch / "data.jsonl", "--symbols", each.symbols});
    const Batch batch = task->test_batch(0, 1, 0, 1);
    CHECK(text_of(*task, batch.inputs) == each.inputs);
    CHECK(text_of(*task, batch.targets) == each.targets);
    CHECK(batch.graded == batch.targets);
    CHECK(batch.counted() == static_cast<std::int64_t>(each.answer));
    CHECK(batch.positions == task->model().length);
  }
}

TEST_CASE("a task from JSON lines: every line once an epoch; what is set aside is never trained on") {
  const Scratch scratch("jsonl-sets");
  write_file(scratch / "data.jsonl", letters());
  const auto task = make_task("jsonl", {"--data", scratch / "data.jsonl"});
  CHECK(task->model().vocabulary == 4 + 4 + 1);
  std::set<Tokens> trained, aside;
  const auto rows = [](const Batch& batch, std::set<Tokens>& into) {
    for (index_t row = 0; row < batch.sequences; ++row) {
      Tokens tokens(batch.inputs.begin() + row * batch.positions, batch.inputs.begin() + (row + 1) * batch.positions);
      tokens.push_back(batch.targets[static_cast<std::size_t>((row + 1) * batch.positions - 1)]);
      into.insert(tokens);
    }
  };
  const Batch epoch = task->training_batch(5, 1, 78);
  rows(epoch, trained);
  CHECK(trained.size() == 78);  // of 96, without twice 9
  std::set<Tokens> second;
  rows(task->training_batch(5, 2, 78), second);
  CHECK(second == trained);
  CHECK(task->training_batch(5, 2, 78).inputs != epoch.inputs);
  CHECK(task->training_batch(6, 1, 78).inputs != epoch.inputs);
  const Batch next = task->training_batch(5, 2, 78), cut = task->training_batch(5, 27, 3);
  CHECK(cut.inputs == Tokens(next.inputs.begin(), next.inputs.begin() + 3 * 6));
  REQUIRE(task->test_sets().size() == 1);
  CHECK(task->test_sets()[0].sequences == 9);
  CHECK(task->validation_sequences() == 9);
  rows(task->test_batch(0, 5, 0, 100), aside);
  rows(task->validation_batch(5, 0, 100), aside);
  CHECK(aside.size() == 18);
  for (const Tokens& each : aside) CHECK_FALSE(trained.contains(each));
  CHECK(task->test_batch(0, 5, 7, 100).sequences == 2);
  CHECK_THROWS_WITH_AS((void)task->test_batch(0, 5, 9, 1), doctest::Contains("there are 9"), InputError);
  CHECK(make_task("jsonl", {"--data", scratch / "data.jsonl", "--set-aside", "0.25"})->test_sets()[0].sequences == 24);
}

TEST_CASE("what is longer than --length loses its left, and it is said") {
  const Scratch scratch("jsonl-cut");
  write_file(
      scratch / "train.jsonl", line_of("a b c d", "e f", "g h") + line_of("a", "e", "g") + line_of("b", "f", "h"));
  write_file(scratch / "test.jsonl", line_of("d c b a", "f e", "g") + line_of("d", "f e a b c d", "g"));
  const Words files{"--data", scratch / "train.jsonl", "--test-data", scratch / "test.jsonl", "--validation-data",
      scratch / "test.jsonl", "--length", "6"};
  const auto task = make_task("jsonl", files);
  const Batch test = task->test_batch(0, 0, 0, 2);
  CHECK(text_of(*task, test.inputs) == "c b a f e | e a b c d | ");
  CHECK(task->test_sets()[0].name == "test.jsonl");
  const std::vector<std::string> notes = task->notes(0);
  REQUIRE(notes.size() == 3);
  CHECK(notes[0] ==
        "1 of 3 sequences of train.jsonl are longer than --length 6, up to 8 symbols: the left of each is "
        "not read");
  CHECK(notes[2] ==
        "2 of 2 sequences of test.jsonl are longer than --length 6, up to 8 symbols: the left of each is "
        "not read, in 1 of them part of the question");
  CHECK(make_task("jsonl", Words(files.begin(), files.end() - 2))->notes(0).empty());
}

TEST_CASE("bad lines of a task are refused with file, line and symbol") {
  const Scratch scratch("jsonl-bad");
  const auto says = [&](const std::string& lines, const std::string& message, const Words& more = {}) {
    const std::string found = refusal(scratch, lines, more);
    CHECK_MESSAGE(has(found, "bad.jsonl: line 4: " + message), found);
  };
  CHECK(refusal(scratch, "\n  \r\n").empty());
  says(R"({"context": "a"})", "no field 'answer'");
  says(R"({"context": "a", "answer": 3})", "field 'answer' is a whole number; a text required");
  says(R"({"context": null, "answer": "a"})", "field 'context' is null; a text required");
  says(R"({"context": "a", "answer": " "})", "an empty answer");
  says(R"({"answer": "a"})", "neither context nor question");
  says(R"({"context": "a", "answer": "a", "answer": "b"})", "field 'answer' given twice");
  says(R"(["a"])", "no object");
  says("{\"context\": \"a\xff\", \"answer\": \"a\"}", "no JSON, from its byte 15 on");
  says("a,b,c", "no JSON, from its byte 1 on");
  says(R"({"context": "a", "answer": "a", "x": 1e999})", "a number beyond");
  says(line_of("a", "b", "a b a b"), "an answer of 4 symbols", {"--length", "3"});
  write_file(scratch / "test.jsonl", line_of("a", "c?", "b") + line_of("a", "zebra?", "b"));
  CHECK(has(refusal(scratch, "", {"--test-data", scratch / "test.jsonl"}), "test.jsonl: line 2: symbol \"zebra\""));
  CHECK(has(refusal(scratch, "", {"--test-data", scratch / "none.jsonl"}), "none.jsonl"));
  write_file(scratch / "empty.jsonl", "\n");
  CHECK(has(refusal(scratch, "", {"--test-data", scratch / "empty.jsonl"}), "no line given"));
  CHECK(refusal(scratch, "", {"--set-aside", "0.5"}).empty() == false);
  write_file(scratch / "fine.jsonl", line_of("a", "c?", "b"));
  Words both{"--test-data", scratch / "fine.jsonl", "--validation-data", scratch / "fine.jsonl"};
  CHECK(refusal(scratch, "", both).empty());
  both.insert(both.end(), {"--set-aside", "0.2"});
  CHECK(refusal(scratch, "", both).find("--set-aside: 0.2 given; it has no effect") == 0);
}

TEST_CASE("train FILE.jsonl: learns, resumes, is looked at and swept; other data are refused") {
  const Scratch scratch("jsonl-train");
  write_file(scratch / "letters.jsonl", letters());
  const Words small{"--dim", "64", "--layers", "2", "--heads", "4", "--quiet"};
  const auto run = [&](const std::string& command, Words arguments, const Words& more = {}) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return whence::test::run(command, arguments);
  };
  const std::string out = scratch / "run";
  const Outcome trained = run("train",
      {scratch / "letters.jsonl", "--test-data", scratch / "letters.jsonl", "--scheme", "absolute", "--steps", "500",
          "--weight-decay", "1", "--validate-every", "250", "--out", out},
      small);
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  CHECK(has(trained.out, "note: 87 of 96 sequences for tests (letters.jsonl) are also trained on"));
  const auto result = nlohmann::json::parse(test::text_of(out + "/results.jsonl"));
  CHECK(result.at("sequences") == 96);
  CHECK(result.at("sequence_error_percent").get<double>() < 40);
  CHECK(result.at("guess: the most frequent answer").get<double>() > 40);
  const auto record = nlohmann::json::parse(test::text_of(out + "/run.json"));
  CHECK(record.at("subject") == "jsonl");
  CHECK(record.at("options").at("data") == scratch / "letters.jsonl");
  CHECK(record.at("facts").at("note").size() == 2);

  const Outcome looked = run("look", {out, "--causes"});
  CHECK_MESSAGE(looked.code == 0, looked.err);
  const Outcome dumped =
      run("train", {"jsonl", "--data", scratch / "letters.jsonl", "--dump", "100", "--dump-set", "set aside"});
  CHECK(std::ranges::count(dumped.out, '\n') == 10);
  const Outcome longer = run("train", {"--resume", "--out", out, "--steps", "502"});
  CHECK_MESSAGE(longer.code == 0, longer.err);
  const Outcome swept =
      run("lab", {"jsonl", "--schemes", "absolute,rope", "--seeds", "1", "--out", scratch / "lab", "--quiet", "--set",
                     "data=" + scratch / "letters.jsonl" + " dim=16 layers=1 heads=2 steps=20"});
  CHECK_MESSAGE(swept.code == 0, swept.err);
  CHECK(swept.out.find("jsonl, sequence error %") == 0);

  write_file(scratch / "letters.jsonl", letters() + line_of("a b c d", "0", "a"));
  for (const auto& [refused, code] :
      {std::pair(run("look", {out}), 3), std::pair(run("train", {"--resume", "--out", out, "--steps", "504"}), 7),
          std::pair(run("train", {"--from", out + "/run.json", "--out", scratch / "again"}), 3)}) {
    CHECK(refused.code == code);
    const std::string& said = refused.err;
    CHECK_MESSAGE(has(said, "same"), said);
  }
}

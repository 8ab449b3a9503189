// Tasks from JSON lines: reading, cutting, refusals; and training, resuming, look and a sweep of such a task.
#include <algorithm>
#include <set>

#include "examples/whence/tasks/task.h"
#include "nn/io/files.h"
#include "tests/support/json.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::tasks;
using namespace whence::test;

namespace {

std::string line_of(const std::string& context, const std::string& question, const std::string& answer) {
  return nlohmann::json{{"context", context}, {"question", question}, {"answer", answer}}.dump() + '\n';
}

// Questions for letters, in all orders of four letters: 24 contexts, 4 questions.
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

std::string spelled(const Task& task, const Tokens& tokens) {
  std::string text;
  for (const std::int64_t token : tokens) text += token == no_target ? "." : task.text(token);
  return text;
}

// Returns the refusal of a training file of three good lines and these.
std::string refusal(const Scratch& scratch, const std::string& lines, const Arguments& more = {}) {
  write_file(
      scratch / "bad.jsonl", line_of("a b", "c?", "a") + line_of("b a", "c?", "b") + line_of("a", "", "b") + lines);
  return error_text([&] { (void)make_task("jsonl", more + words("--data " + scratch / "bad.jsonl")); });
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
    CHECK(spelled(*task, batch.inputs) == each.inputs);
    CHECK(spelled(*task, batch.targets) == each.targets);
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
      Tokens tokens = batch.row(row).inputs;
      tokens.push_back(batch.row(row).targets.back());
      into.insert(tokens);
    }
  };
  const Batch epoch = task->training_batch(5, 1, 78);
  rows(epoch, trained);
  CHECK(trained.size() == 78);  // 96 without twice 9
  std::set<Tokens> second;
  rows(task->training_batch(5, 2, 78), second);
  CHECK(second == trained);
  CHECK(task->training_batch(5, 2, 78).inputs != epoch.inputs);
  CHECK(task->training_batch(6, 1, 78).inputs != epoch.inputs);
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
  const std::string files = "--data " + scratch / "train.jsonl" + " --test-data " + scratch / "test.jsonl" +
                            " --validation-data " + scratch / "test.jsonl";
  const auto task = make_task("jsonl", words(files + " --length 6"));
  const Batch test = task->test_batch(0, 0, 0, 2);
  CHECK(spelled(*task, test.inputs) == "c b a f e | e a b c d | ");
  CHECK(task->test_sets()[0].name == "test.jsonl");
  const std::vector<std::string> notes = task->notes(0);
  REQUIRE(notes.size() == 3);
  CHECK(has(notes[0], "1 of 3 sequences"));
  CHECK(has(notes[2], "2 of 2 sequences"));
  CHECK(make_task("jsonl", words(files))->notes(0).empty());
}

TEST_CASE("bad lines of a task are refused with file, line and symbol") {
  const Scratch scratch("jsonl-bad");
  CHECK(refusal(scratch, "\n  \r\n").empty());
  for (const auto& [lines, message] : std::vector<std::pair<std::string, std::string>>{
           {R"({"context": "a"})", "no field 'answer'"}, {R"({"context": "a", "answer": 3})", "field 'answer'"},
           {R"({"context": "a", "answer": " "})", "an empty answer"},
           {R"({"answer": "a"})", "neither context nor question"},
           {"{\"context\": \"a\xff\", \"answer\": \"a\"}", "no JSON, from its byte 15"},
           {line_of("a", "b", "a b a b"), "an answer of 4 symbols"}}) {
    const std::string found = refusal(scratch, lines, words("--length 3"));
    CHECK_MESSAGE(has(found, "bad.jsonl: line 4: " + message), found);
  }
  write_file(scratch / "test.jsonl", line_of("a", "c?", "b") + line_of("a", "zebra?", "b"));
  write_file(scratch / "empty.jsonl", "\n");
  write_file(scratch / "fine.jsonl", line_of("a", "c?", "b"));
  const std::string fine = scratch / "fine.jsonl", both = "--test-data " + fine + " --validation-data " + fine;
  for (const auto& [options, message] : std::vector<std::pair<std::string, std::string>>{
           {"--test-data " + scratch / "test.jsonl", "test.jsonl: line 2: symbol \"zebra\""},
           {"--test-data " + scratch / "none.jsonl", "none.jsonl"},
           {"--test-data " + scratch / "empty.jsonl", "no line given"}, {"--set-aside 0.5", "--set-aside"},
           {both + " --set-aside 0.2", "--set-aside: 0.2 given; it has no effect"}}) {
    const std::string found = refusal(scratch, "", words(options));
    CHECK_MESSAGE(has(found, message), found);
  }
  CHECK(refusal(scratch, "", words(both)).empty());
}

TEST_CASE("test files are separated by commas, and may have commas in their names and folders") {
  const Workplace here("jsonl-commas");
  std::filesystem::create_directories("a, b");
  for (const char* name : {"train.jsonl", "questions, v2.jsonl", "plain.jsonl", "a, b/c,d.jsonl", "x", "x,y"})
    write_file(name, letters());
  const auto sets = [](const std::string& files) {
    std::string names;
    for (const TestSet& set : make_task("jsonl", {"--data", "train.jsonl", "--test-data", files})->test_sets())
      names += set.name + '|';
    return names;
  };
  CHECK(sets("questions, v2.jsonl") == "questions, v2.jsonl|");
  CHECK(sets("plain.jsonl,questions, v2.jsonl,plain.jsonl") ==
        "plain.jsonl|questions, v2.jsonl|" + std::filesystem::absolute("plain.jsonl").string() + '|');
  CHECK(sets("a, b/c,d.jsonl,plain.jsonl") == "c,d.jsonl|plain.jsonl|");
  CHECK(sets("x,y") == "x,y|");  // the longest name that is there
  CHECK_THROWS_WITH_AS((void)sets("plain.jsonl,none, v2.jsonl"), doctest::Contains("/none: cannot"), InputError);
}

TEST_CASE("train FILE.jsonl: learns, resumes and is looked at") {
  const Scratch scratch("jsonl-train");
  const std::string file = scratch / "letters.jsonl", out = scratch / "run";
  write_file(file, letters());
  const Outcome trained =
      done("train " + file + " --test-data " + file +
           " --scheme absolute --steps 500 --weight-decay 1 --validate-every 250 --dim 64 --layers 2 "
           "--heads 4 --quiet --out " +
           out);
  CHECK(has(trained.out, "note: 87 of 96"));
  const auto result = json_of(text_of(out + "/results.jsonl")), record = json_of(text_of(out + "/run.json"));
  CHECK(result.at("sequence_error_percent").get<double>() < 40);
  CHECK(result.at("guess: the most frequent answer").get<double>() > 40);
  CHECK((record.at("subject") == "jsonl" && record.at("options").at("data") == file));
  (void)done("look --causes " + out);
  (void)done("train --resume --steps 502 --out " + out);
}

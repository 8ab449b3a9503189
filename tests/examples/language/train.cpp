// `train lm` as a user runs it: killed and resumed, repeated, refused with bad text; and text drawn from its model.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "examples/whence/run/run_files.h"
#include "nn/io/checkpoint.h"
#include "nn/io/files.h"
#include "tensor/random.h"
#include "tests/support/programs.h"

using namespace whence;
using namespace whence::test;

namespace {

// Sentences of a small grammar, in documents: enough to learn something from in seconds.
void write_text(const std::string& path, int documents) {
  const Stream stream(1, "tests.text");
  const char* words[] = {"the cat ", "a dog ", "sat ", "ran ", "on the mat", "to the sea", "and then "};
  std::string text;
  std::uint64_t drawn = 0;
  for (int document = 0; document < documents; ++document) {
    for (int sentence = 0; sentence < 8; ++sentence) {
      for (int word = 0; word < 6; ++word) text += words[stream.below(drawn++, 7)];
      text += ".\n";
    }
    text += "\n\n\n";
  }
  write_file(path, text);
}

Arguments command(const std::string& out, const Arguments& more = {}, const std::string& data = "text.txt") {
  return Arguments{"lm", "--data", data, "--dim", "16", "--layers", "1", "--heads", "2", "--length", "16", "--batch",
             "4", "--steps", "40", "--quiet", "--warm-up", "5", "--save-every", "5", "--dropout", "0.1", "--accumulate",
             "2", "--evaluate-to", "4", "--evaluation-windows", "3", "--out", out} +
         more;
}

Outcome run(const Arguments& arguments) { return RunningProgram("train", arguments, "train_lm").finish(); }

std::string refusal(const Arguments& more, const std::string& data = "text.txt") {
  std::filesystem::remove_all("refused");
  const Outcome outcome = run(command("refused", more, data));
  CHECK((outcome.code == 4) == (outcome.err.find("cannot read") != std::string::npos));
  CHECK((outcome.code >= 2 && outcome.code <= 4));
  CHECK_FALSE(std::filesystem::exists("refused/metrics.jsonl"));  // before any step
  return outcome.err;
}

}  // namespace

TEST_CASE("train lm: killed and resumed, and repeated from run.json, gives the same weights; generate reads them") {
  for (const char* folder : {"whole", "cut", "again"}) std::filesystem::remove_all(folder);
  write_text("text.txt", 60);
  const Outcome whole = run(command("whole"));
  REQUIRE_MESSAGE(whole.code == 0, whole.err);
  for (const char* name : {"tokeniser.json", "lengths.csv", "lengths_delta.csv", "lengths.svg", "results.jsonl"})
    CHECK_MESSAGE(std::filesystem::exists(std::filesystem::path("whole") / name), name);
  CHECK(whole.out.find("Delta-P") != std::string::npos);
  const std::string weights = read_file("whole/weights.safetensors");

  std::filesystem::remove_all("beside");
  const Outcome beside = run(command("beside", {"--scheme", "alibi", "--beside", "whole"}));
  REQUIRE_MESSAGE(beside.code == 0, beside.err);
  const std::string both = read_file("beside/lengths.csv"), one = read_file("whole/lengths.csv");
  CHECK(both.find(one.substr(one.find('\n') + 1)) != std::string::npos);  // every figure of the run beside, as it was
  CHECK(both.find("alibi,") != std::string::npos);
  CHECK(refusal({"--beside", "nowhere"}).find("nowhere/lengths.json") != std::string::npos);

  const RunningProgram killed("train", command("cut"), "killed");
  for (int wait = 0; wait < 400 && !std::filesystem::exists("cut/metrics.jsonl"); ++wait) usleep(5000);
  usleep(30000);
  killed.signal(SIGKILL);
  (void)killed.finish();
  const bool saved = find_latest("cut/checkpoints").has_value();
  const Outcome resumed = run(command("cut", saved ? Arguments{"--resume", "--threads", "1"} : Arguments{}));
  REQUIRE_MESSAGE(resumed.code == 0, resumed.err);
  CHECK(read_file("cut/weights.safetensors") == weights);

  const Outcome again = run({"--from", "whole/run.json", "--out", "again", "--quiet"});
  REQUIRE_MESSAGE(again.code == 0, again.err);
  CHECK(read_file("again/weights.safetensors") == weights);

  std::string record = read_file("whole/run.json");
  record.replace(record.find("\"rope\""), 6, "\"cop\"");
  write_file("damaged.json", record);
  const Outcome damaged = run({"--from", "damaged.json", "--out", "again"});
  CHECK_MESSAGE((damaged.code == 3 && damaged.err.find("damaged.json: ") != std::string::npos), damaged.err);

  const Outcome longer = run({"--resume", "--out", "cut", "--steps", "42"});
  CHECK_MESSAGE(longer.code == 0, longer.err);
  CHECK(longer.err.find("a run of 40 steps becomes one of 42") != std::string::npos);
  CHECK(read_file("cut/weights.safetensors") != weights);

  const Arguments draw{"--run", "whole", "--prompt", "the cat ", "--tokens", "40", "--seed", "3"};
  const Outcome text = RunningProgram("generate", draw, "generate").finish(),
                same = RunningProgram("generate", draw, "generate").finish();
  CHECK_MESSAGE(text.code == 0, text.err);
  CHECK(text.out.size() > 8);
  CHECK(text.out == same.out);
}

TEST_CASE("train lm: bad text, bad tokenisers and other data are refused before any step") {
  write_text("text.txt", 60);
  write_file("empty.txt", "");
  write_file("short.txt", "abc\n\n\n\ndef");
  write_file("broken.json", "{");
  CHECK(refusal({"--data", "missing.txt"}).find("--data") != std::string::npos);  // given twice
  for (const std::string file : {"missing.txt", "empty.txt"}) CHECK(refusal({}, file).find(file) != std::string::npos);
  CHECK(refusal({}, "short.txt").find("required") != std::string::npos);
  CHECK(
      refusal({"--tokeniser", "broken.json"}).find("broken.json: no file that `tokenize` wrote") != std::string::npos);
  CHECK(refusal({"--model", "gpt2-124m"}).find("--dim") != std::string::npos);
  CHECK(refusal({"--scheme", "cop"}).find("did you mean 'cope'") != std::string::npos);

  std::filesystem::remove_all("data");
  REQUIRE(run(command("data")).code == 0);
  write_text("text.txt", 61);  // the text is another one now
  const Outcome other = run(command("data", {"--resume"}));
  CHECK(other.code == 7);
  CHECK(other.err.find("another run") != std::string::npos);
}

TEST_CASE("train lm: no output inside a folder of text, and no option that would do nothing") {
  const Scratch scratch("train-lm-texts");
  std::filesystem::create_directories(scratch.folder / "tree");
  std::filesystem::create_directory_symlink(scratch.folder / "tree", scratch.folder / "link");
  write_text(scratch / "tree/text.txt", 60);
  write_file(scratch / "lines.jsonl", "{\"text\": \"a b\"}\n");
  const std::string tree = scratch / "tree", text = scratch / "tree/text.txt", lines = scratch / "lines.jsonl";
  const auto refused = [&](const Arguments& arguments, const std::string& words) {
    const Outcome outcome = run(Arguments{"lm"} + arguments);
    CHECK((outcome.code == 4) == (outcome.err.find("cannot read") != std::string::npos));
    CHECK((outcome.code >= 2 && outcome.code <= 4));
    CHECK_MESSAGE(outcome.err.find(words) != std::string::npos, outcome.err);
    CHECK(std::distance(std::filesystem::directory_iterator(tree), {}) == 1);  // nothing was written
  };
  refused({"--data", tree, "--out", tree + "/runs/a"}, "a folder outside of " + tree + " required; --data reads");
  refused({"--data", tree, "--out", tree}, "--out: ");
  refused({"--data", tree, "--out", scratch / "link/run"}, "--out: ");
  refused({"--data", scratch / "link", "--out", tree + "/run"}, "--out: ");
  refused({"--data", text, "--validation-data", tree, "--out", tree + "/run"}, "--validation-data reads");
  refused({"--data", text, "--test-data", tree, "--out", tree + "/run"}, "--test-data reads");
  const Outcome lab =
      RunningProgram("lab", {"lm", "--set", "data=" + tree, "--out", tree + "/lab"}, scratch / "log").finish();
  CHECK(lab.code == 2);
  CHECK_FALSE(std::filesystem::exists(tree + "/lab"));
  const auto fine = [&](const std::string& data, const std::string& out) {  // refused for what comes later
    refused({"--data", data, "--out", out, "--tokeniser", "none.json"}, "none.json");
  };
  fine(text, tree + "/run");
  fine(tree, scratch / "tree2");

  refused({"--data", text, "--include", "*.cpp"}, "--include");
  refused({"--data", tree, "--field", "text"}, "--field: text given; it has no effect without a file of JSON lines");
  refused({"--data", lines, "--blank-lines", "2"}, "--blank-lines: 2 given; it has no effect");
  refused({"--data", lines, text, "--blank-lines", "2", "--field", "text", "--tokeniser", "none.json"}, "none.json");
}

TEST_CASE("train lm: three files, of which the test is scored as a whole") {
  const Scratch scratch("language-three");
  std::string text, lines;
  for (int k = 0; k < 200; ++k) text += "the cat sat on the mat. ";
  for (int k = 0; k < 20; ++k) lines += nlohmann::json{{"body", text.substr(0, 300)}}.dump() + "\n";
  write_file(scratch / "train.jsonl", lines);
  write_file(scratch / "validation.txt", text);
  write_file(scratch / "test.txt", text.substr(0, 1000));
  const std::string out = scratch / "run";
  const std::string trained = done(
      "train lm --dim 16 --layers 1 --heads 2 --length 16 --steps 20 --warm-up 2 --evaluate-to 2 --quiet --field body "
      "--data " +
      scratch / "train.jsonl" + " --validation-data " + scratch / "validation.txt" + " --test-data " +
      scratch / "test.txt" + " --out " + out)
                                  .out;
  CHECK(has(trained, "\ntest: "));
  const std::string results = text_of(out + "/results.jsonl");
  const auto result = nlohmann::json::parse(results.substr(0, results.find('\n')));
  for (const char* name : {"perplexity_per_byte", "perplexity_per_word", "test_perplexity_per_byte", "test_loss"})
    CHECK_MESSAGE(result.contains(name), name);
  // Bytes are the tokens here.
  CHECK(result.at("test_perplexity_per_byte").get<double>() ==
        doctest::Approx(result.at("test_perplexity").get<double>()).epsilon(1e-9));
  (void)done("train --resume --steps 22 --quiet --out " + out);
  write_file(scratch / "test.txt", text.substr(0, 900));
  CHECK(ran("train --resume --out " + out).code == 7);
}

// `train lm` as a user runs it: repeated, refused with bad text; and text drawn from its model.

#include "examples/whence/look/subject.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/random.h"
#include "tests/support/json.h"

using namespace whence;
using namespace whence::test;

namespace {

// Writes sentences of a small grammar, in documents, that a model can learn in seconds.
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

}  // namespace

TEST_CASE("train lm: repeated it gives the same weights; generate reads them") {
  const Workplace here("train-lm");
  write_text("text.txt", 60);
  const std::string train =
      "train lm --data text.txt --dim 16 --layers 1 --heads 2 --length 16 --batch 4 --steps 40 --quiet --warm-up 5 "
      "--save-every 5 --dropout 0.1 --accumulate 2 --evaluate-to 4 --evaluation-windows 3 --out ";
  const Outcome whole = done(train + "whole");
  for (const char* name : {"tokeniser.json", "results.jsonl"})
    CHECK_MESSAGE(std::filesystem::exists(std::filesystem::path("whole") / name), name);
  CHECK(has(whole.out, "Delta-P"));
  const std::string weights = read_file("whole/weights.safetensors");
  (void)done(train + "again");
  CHECK(read_file("again/weights.safetensors") == weights);
  const Outcome longer = done("train --resume again --steps 42");
  CHECK(has(longer.err, "40 steps becomes"));
  CHECK(read_file("again/weights.safetensors") != weights);
  CHECK(done("generate whole --prompt 'the cat ' --tokens 40").out.size() > 8);
  (void)done(train + "from --weights-of whole");
  (void)done("train --resume from --steps 42 --weights-of whole");
  CHECK(has(read_file("from/run.json"), "weights-of.sha256"));
  CHECK_THROWS_WITH_AS((void)look::subject_of({.run = "from", .untrained = true}),
      doctest::Contains("did not begin with random"), InputError);
}

TEST_CASE("train lm: a page of a text without lines has its first 128 KiB") {
  const Workplace here("train-lm-line");
  write_file("line.txt", std::string(2'000'000, 'a'));
  (void)done(
      "train lm --data line.txt --dim 8 --layers 1 --heads 2 --length 16 --batch 1 --steps 1 --warm-up 0 --quiet "
      "--evaluate-to 1 --evaluation-windows 1 --validation-windows 1 --out run");
  for (const auto& [name, bytes] : look::files_of({.run = "run"})) CHECK_MESSAGE(bytes.size() < 140'000, name);
}

TEST_CASE("train lm: three files, of which the test is scored as a whole") {
  const Scratch scratch("language-three");
  std::string text, lines;
  for (int k = 0; k < 200; ++k) text += "the cat sat on the mat. ";
  for (int k = 0; k < 20; ++k) lines += nlohmann::json{{"body", text.substr(0, 300)}}.dump() + "\n";
  write_file(scratch / "train.jsonl", lines);
  write_file(scratch / "validation.txt", text);
  write_file(scratch / "test.txt", text.substr(0, 1000));
  const std::string out = scratch / "run", files = " --data " + scratch / "train.jsonl" + " --validation-data " +
                                                   scratch / "validation.txt" + " --test-data " + scratch / "test.txt";
  const Outcome trained = done(
      "train lm --dim 16 --layers 1 --heads 2 --length 16 --steps 20 --warm-up 2 --evaluate-to 2 --quiet --field body "
      "--out " +
      out + files);
  CHECK(has(trained.out, "\ntest: "));
  const auto result = json_lines(text_of(out + "/results.jsonl"))[0];
  for (const char* name : {"perplexity_per_byte", "perplexity_per_word", "test_loss"})
    CHECK_MESSAGE(result.contains(name), name);
  CHECK(result.at("test_perplexity_per_byte").get<double>() ==
        doctest::Approx(result.at("test_perplexity").get<double>()).epsilon(1e-9));
  (void)done("train --resume --steps 22 --quiet --out " + out);
}

TEST_CASE("train FILE: its content says whether it is text or questions") {
  const Workplace here("language-train-file");
  std::string text, questions;
  for (int k = 0; k < 40; ++k) {
    text += nlohmann::json{{"text", "the cat sat on the mat."}}.dump() + '\n';
    questions += nlohmann::json{{"question", to_text(k, " ?")}, {"answer", "yes"}}.dump() + '\n';
  }
  const std::string sizes = " --dim 16 --layers 1 --heads 2 --steps 2 --batch 2 --warm-up 1 --quiet --out ";
  for (const char* name : {"text.jsonl", "text.json"}) {
    write_file(name, text);
    const Outcome trained = done(to_text("train ", name, " --length 8 --evaluate-to 1", sizes, name, "-run"));
    CHECK_MESSAGE(has(trained.out, "training: "), trained.out);
    CHECK(has(trained.out, "36 documents"));
  }
  write_file("plain.txt", "the cat sat on the mat.the cat sat on the mat.");
  const auto loss_of = [](const std::string& more) {
    const std::string out = done("look --causes " + more).out;
    return out.substr(0, out.find("; "));
  };
  CHECK(loss_of("text.json-run") == loss_of("text.json-run --text plain.txt"));  // looked at as it was trained
  for (const char* name : {"questions.jsonl", "questions.txt"}) {
    write_file(name, questions);
    CHECK(has(done(to_text("train ", name, sizes, name, "-run")).out, "4 of 40 lines"));
  }
  const Outcome misspelt = run("train", {"qestions.jsonl"});
  CHECK(misspelt.code == 2);
  CHECK(has(misspelt.err, "task 'qestions.jsonl':"));
}

// generate as a user meets it: files, exit codes, one-line errors, the same text for the same seed.

#include "tests/support/programs.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/run_record.h"
#include "nn/io/checkpoint.h"
#include "nn/io/files.h"
#include "nn/io/safetensors.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::language;
using namespace whence::test;
using namespace std::string_literals;

namespace {

// Saves a model with random weights, as training does.
void save_model(const Scratch& scratch, const std::string& scheme) {
  const TokeniserPointer tokeniser = byte_tokeniser();
  TransformerOptions options = small(scheme);
  options.vocabulary = tokeniser->vocabulary();
  const auto model = random_decoder(options, DType::f32);
  save_weights(scratch / "weights.safetensors", model->parameters());
  tokeniser->save(scratch / tokeniser_file);
  write_file(scratch / "run.json", text_of({"train", "0", "lm", {}, {}, "", language_facts(options, *tokeniser)}));
}

}  // namespace

TEST_CASE("generate: whole characters, the same text for the same seed and any number of threads, greedy and cut") {
  const Scratch scratch("generate");
  save_model(scratch, "rope");
  const std::string run = "generate " + scratch.folder.string();
  const auto text = [&](const std::string& more) {
    const Outcome outcome = done(run + " --tokens 40 --quiet " + more);
    CHECK(outcome.err.empty());
    CHECK(Utf8Stream().push(outcome.out) == outcome.out);
    return outcome.out;
  };
  const std::string drawn = text("--prompt née --seed 3");
  CHECK(drawn.starts_with("née"));
  REQUIRE(setenv("OMP_NUM_THREADS", "1", 1) == 0);
  CHECK(text("--prompt née --seed 3") == drawn);
  REQUIRE(unsetenv("OMP_NUM_THREADS") == 0);
  CHECK(text("--prompt née --seed 4") != drawn);
  const std::string greedy = text("--temperature 0");
  for (const char* same : {"--top-k 1 --seed 9", "--top-p 1e-9"}) CHECK(text(same) == greedy);
  CHECK(has(done(run + " --tokens 5").err, "rope: 5 tokens"));
}

TEST_CASE("a run of a token file keeps the list, reads numbers, and shows tokens") {
  const Workplace here("token-file");
  std::vector<double> ids;
  for (int k = 0; k < 300; ++k) ids.push_back(k % 3);
  const std::string list = R"({"format": "whence tokeniser", "version": 1, "kind": "tokens", "vocabulary": 4,
    "tokens": ["the", " c\u00c3", "\u00a9t", "<|endoftext|>"]})";
  (void)write_safetensors(
      "t.safetensors", {{{"tokens", Tensor::of(ids, {std::ssize(ids)}, DType::i64)}}, {{"tokeniser", list}}});
  (void)done(
      "train t.safetensors --dim 16 --layers 1 --heads 2 --length 8 --steps 60 --lr 0.02 --warm-up 2 --evaluate-to 1 "
      "--quiet --out run");
  CHECK(text_of("run/tokeniser.json") == list);
  CHECK(done("generate run --prompt '0 1' --tokens 4 --temperature 0 --quiet").out == "the c\u00e9tthe c\u00e9t\n");
  CHECK(has(done("look run --prompt '0 1 2' --causes").out, "text 0 1 2"));
  CHECK(has(done("look run --causes").out, "set aside"));
  for (const char* command : {"generate run --prompt 'the c'", "look run --prompt 'the c'", "generate run"}) {
    const Outcome refused = ran(command);
    CHECK((refused.code == 2 && has(refused.err, "reads numbers")));
  }
  CHECK(has(ran("train t.safetensors --tokeniser bytes").err, "token file"));
}

TEST_CASE("generate: a terminal gets no character that acts, a file gets the text as it is") {
  const Scratch scratch("generate-terminal");
  save_model(scratch, "rope");
  const Arguments arguments{scratch.folder.string(), "--prompt", "a\x1b[2J\tb\n\u202e", "--tokens", "200", "--quiet"};
  CHECK(run("generate", arguments).out.starts_with("a\x1b[2J\tb\n\u202e"));

  std::string line = program_folder() + "/whence generate";
  for (const std::string& word : arguments) line += " $'" + replaced(replaced(word, "\x1b", "\\e"), "\n", "\\n") + "'";
  const std::string shown = shell("SHELL=/bin/bash script -qec \"" + line + "\" /dev/null").out;
  CHECK_MESSAGE(
      shown.starts_with("a\\x1b[2J\tb\r\n\\u{202e}"), shown);  // the terminal itself puts CR before a line end
  for (const char c : shown) CHECK((c == '\r' || c == '\n' || c == '\t' || (c & 0x80) || (c >= ' ' && c < 0x7f)));
}

TEST_CASE("generate: a scheme that knows no longer positions goes on all the same, within its training length") {
  const Scratch scratch("generate-absolute"), drawn("generate-randomised");
  save_model(scratch, "absolute");
  save_model(drawn, "randomised(rope, length=64)");
  const std::string run = "generate --quiet --tokens 90 ";
  const Outcome cut = done(run + scratch.folder.string() + " --prompt 'a prompt of 22 letters'");
  CHECK(has(cut.err, "13 of its 22"));
  (void)done(run + drawn.folder.string());
  const Outcome too_long = ran(run + scratch.folder.string() + " --context 20");
  CHECK(too_long.code == 2);
  CHECK_MESSAGE(has(too_long.err, "absolute"), too_long.err);
}

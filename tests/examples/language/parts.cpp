// Text from JSON lines, folders and a test file, and perplexities per token, byte and word.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "examples/whence/cli/statistics.h"
#include "examples/whence/language/language_model.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::language;
using namespace whence::test;
namespace fs = std::filesystem;

namespace {

std::string decoded(const Corpus& corpus, const Tokeniser& tokeniser, Part part) {
  return tokeniser.decode(corpus.slice(part, 0, corpus.tokens(part).size()));
}

std::string error_of(const CorpusOptions& options) {
  return error_text([&] { const Corpus corpus(options, *byte_tokeniser()); });
}

}  // namespace

TEST_CASE("text: JSON lines are documents, and a test is a part of its own") {
  const Scratch scratch("language-jsonl");
  write_file(
      scratch / "a.jsonl", "{\"text\": \"one two\", \"body\": \"x\"}\n\n{\"text\": \"\"}\n{\"text\": \"three\\n\"}\n");
  write_file(scratch / "b.txt", "test  it\n now");
  const CorpusOptions options{.data = scratch / "a.jsonl", .test_data = scratch / "b.txt", .validation_share = 0};
  const TokeniserPointer bytes = byte_tokeniser();
  const Corpus corpus(options, *bytes);
  CHECK(decoded(corpus, *bytes, Part::training) == "one twothree\n");
  CHECK(decoded(corpus, *bytes, Part::test) == "test  it\n now");
  CHECK(corpus.size(Part::training).documents == 2);
  CHECK(corpus.size(Part::training).words == 3);
  CHECK(corpus.size(Part::test).words == 3);
  CHECK(has(corpus.summary(), "test: 1 documents, 13 bytes"));
  CorpusOptions other = options;
  other.test_data = {};
  CHECK(Corpus(other, *bytes).hash() != corpus.hash());

  write_file(scratch / "bad.jsonl", "{\"text\": \"fine\"}\n{\"body\": \"x\"}\n");
  CHECK(has(error_of({.data = scratch / "bad.jsonl"}), "bad.jsonl: line 2: no field 'text'"));
  write_file(scratch / "unfit.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"ab\"}\n");
  CHECK(has(error_of({.data = scratch / "unfit.jsonl", .field = "none"}), "line 1: no field 'none'"));
}

TEST_CASE("text: all below a folder, but what patterns leave out") {
  const Scratch scratch("language-tree");
  for (const char* folder : {"src/deep", "src/.git"}) fs::create_directories(scratch.folder / folder);
  for (const char* name :
      {"src/b.cpp", "src/a.h", "src/deep/c.cpp", "src/deep/notes.txt", "src/.git/d.cpp", "src/.e.cpp"})
    write_file(scratch / name, std::string(name) + "\n");
  write_file(scratch / "src/empty.cpp", "");
  fs::create_symlink(scratch.folder / "src/b.cpp", scratch.folder / "src/link.cpp");
  const auto names = [&](const TreePatterns& patterns) {
    std::string all;
    for (const std::string& file : files_of({scratch / "src"}, patterns))
      all += fs::path(file).lexically_relative(scratch.folder / "src").string() + ' ';
    return all;
  };
  CHECK(names({}) == "a.h b.cpp deep/c.cpp deep/notes.txt ");
  CHECK(names({.include = {"*.cpp", "*.h"}}) == "a.h b.cpp deep/c.cpp ");
  CHECK(names({.include = {"*.cpp"}, .exclude = {"deep/*"}}) == "b.cpp ");
  CHECK(names({.exclude = {"c.cpp"}}) == "a.h b.cpp deep/notes.txt ");
  CHECK_THROWS_WITH_AS(
      (void)names({.include = {"*.py"}}), doctest::Contains("no file that --include and --exclude leave"), InputError);
  const Corpus corpus({.data = scratch / "src", .include = "*.cpp", .validation_share = 0}, *byte_tokeniser());
  CHECK(corpus.size(Part::training).documents == 2);
}

TEST_CASE("perplexities per byte and per word are of the same nats as the one per token") {
  const Scratch scratch("language-units");
  write_file(scratch / "text", "aa bb aa bb aa bb aa\n");
  const std::string_view texts[] = {"aa bb aa\n"};
  const TokeniserPointer words = train_list("words", texts, 0 + 8);
  const Corpus corpus({.data = scratch / "text", .validation_share = 0}, *words);
  Transformer model(
      {.vocabulary = words->vocabulary(), .length = 4, .dim = 8, .layers = 1, .heads = 2, .scheme = "none"});
  model.initialise(1);
  const LanguageScore found = score(model, corpus, Part::training, {4, 2}, 100);
  const PartSize& size = corpus.size(Part::training);
  CHECK((size.bytes == 21 && size.words == 7));
  const double nats = found.loss * static_cast<double>(size.tokens);
  CHECK(found.perplexity_per_byte == doctest::Approx(std::exp(nats / 21)).epsilon(1e-12));
  CHECK(found.perplexity_per_word == doctest::Approx(std::exp(nats / 7)).epsilon(1e-12));
  CHECK(std::log2(found.perplexity_per_byte) == doctest::Approx(found.bits_per_byte).epsilon(1e-12));
}

TEST_CASE("train lm: three files, of which the test is scored as a whole") {
  const Scratch scratch("language-three");
  std::string text, lines;
  for (int k = 0; k < 200; ++k) text += "the cat sat on the mat. ";
  for (int k = 0; k < 20; ++k) lines += nlohmann::json{{"body", text.substr(0, 300)}}.dump() + "\n";
  write_file(scratch / "train.jsonl", lines);
  write_file(scratch / "validation.txt", text);
  write_file(scratch / "test.txt", text.substr(0, 1000));
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"lm", "--dim", "16", "--layers", "1", "--heads", "2", "--length", "16", "--steps", "20",
                                  "--warm-up", "2", "--evaluate-to", "2", "--quiet", "--out", scratch / "run"});
    return whence::test::run("train", more);
  };
  const std::vector<std::string> files{"--data", scratch / "train.jsonl", "--field", "body", "--validation-data",
      scratch / "validation.txt", "--test-data", scratch / "test.txt"};
  const Outcome trained = run(files);
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  CHECK(has(trained.out, "\ntest: "));
  const std::string results = read_file(scratch / "run/results.jsonl");
  const auto result = nlohmann::json::parse(results.substr(0, results.find('\n')));
  for (const char* name : {"perplexity_per_byte", "perplexity_per_word", "test_perplexity_per_byte", "test_loss"})
    CHECK_MESSAGE(result.contains(name), name);
  // Bytes are the tokens here.
  CHECK(result.at("test_perplexity_per_byte").get<double>() ==
        doctest::Approx(result.at("test_perplexity").get<double>()).epsilon(1e-9));
  const Outcome resumed = test::run("train", {"--resume", "--out", scratch / "run", "--steps", "22", "--quiet"});
  CHECK_MESSAGE(resumed.code == 0, resumed.err);
  write_file(scratch / "test.txt", text.substr(0, 900));
  const Outcome other = test::run("train", {"--resume", "--out", scratch / "run"});
  CHECK(other.code == 7);
  CHECK(has(run({"--data", scratch / "test.txt", "--include", "*.cpp"}).err, "--include"));
  CHECK(has(run({"--data", scratch / "test.txt", "--field", "body"}).err, "--field"));
}

// Corpora: documents, the split, JSON lines, folders, tokens, windows, perplexities per token, byte and word, and every
// bad input before a step is taken.
#include <cmath>
#include <numeric>

#include "examples/whence/language/corpus.h"
#include "examples/whence/language/language_model.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "nn/io/safetensors.h"
#include "tests/support/programs.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::language;
using namespace whence::test;
using namespace std::string_literals;
namespace fs = std::filesystem;

namespace {

// Chapters of different lengths, three blank lines between them.
std::string book(int chapters) {
  std::string text;
  for (int c = 0; c < chapters; ++c) {
    text += to_text("CHAPTER ", c, "\n\n");
    for (int line = 0; line < 3 + c * 7 % 11; ++line) text += to_text("line ", line, " of chapter ", c, "\n");
    if (c + 1 < chapters) text += "\n\n\n";
  }
  return text;
}

std::string refusal(const CorpusOptions& options, const Tokeniser& tokeniser = *byte_tokeniser()) {
  return error_text([&] { const Corpus corpus(options, tokeniser); });
}

std::string decoded(const Corpus& corpus, const Tokeniser& tokeniser, Part part) {
  return tokeniser.decode(corpus.slice(part, 0, corpus.size(part).tokens));
}

// Returns the file of a tokeniser of these tokens.
std::string list(const std::string& tokens, int vocabulary) {
  return to_text(R"({"format": "whence tokeniser", "version": 1, "kind": "tokens", "vocabulary": )", vocabulary,
      R"(, "tokens": [)", tokens, "]}");
}

std::string joined(const std::vector<std::string_view>& documents) {
  std::string text;
  for (const std::string_view each : documents) text += each;
  return text;
}

struct BookFile {
  Scratch scratch{"corpus"};
  std::string path = scratch / "book.txt";
  TokeniserPointer tokeniser = byte_tokeniser();
  explicit BookFile(const std::string& text = book(20)) { write_file(path, text); }
};

}  // namespace

TEST_CASE("documents: cut behind runs of blank lines, nothing lost") {
  const auto documents = [](std::string_view text, std::int64_t lines) {
    const auto found = documents_of(text, lines);
    CHECK(joined(found) == text);
    return found.size();
  };
  CHECK(documents(book(20), 3) == 20);
  CHECK(documents(book(20), 4) == 1);
  CHECK(documents(book(20), 1) == 40);  // headings are documents too
  CHECK(documents(book(20), 0) == 1);
  CHECK(documents("", 3) == 0);
  CHECK(documents("\n\n\n\na\n\n\n\n", 3) == 1);  // what comes before the first text, or after the last, is no document
  CHECK(documents("a\n \r\n\t\n\r\nb", 3) == 2);  // blanks and CRs are still blank lines
  CHECK(documents("\0\n\n\n\n\0"s, 3) == 2);      // NUL is text
}

TEST_CASE("validation: drawn documents of about the share, the same for one seed, others for another") {
  const std::string text = book(200);
  const auto documents = documents_of(text, 3);
  const auto bytes = [&](const std::vector<bool>& chosen) {
    std::size_t total = 0;
    for (std::size_t i = 0; i < documents.size(); ++i) total += chosen[i] ? documents[i].size() : 0;
    return static_cast<double>(total) / static_cast<double>(text.size());
  };
  for (const double share : {0.05, 0.2, 0.5}) {
    const auto chosen = validation_documents(documents, share, 1);
    CHECK((bytes(chosen) >= share && bytes(chosen) < share + 0.03));
    CHECK((chosen == validation_documents(documents, share, 1) && chosen != validation_documents(documents, share, 2)));
  }
  const auto two = documents_of("a\n\n\n\nb", 3);
  for (const double share : {0.001, 0.999}) {
    const auto chosen = validation_documents(two, share, 1);
    CHECK(chosen[0] + chosen[1] == 1);  // one is drawn, one is left
  }
}

TEST_CASE("a corpus holds every document once, whole, in order") {
  const BookFile file;
  const Corpus corpus({.data = file.path, .validation_share = 0.3}, *file.tokeniser);
  const std::string training = decoded(corpus, *file.tokeniser, Part::training),
                    validation = decoded(corpus, *file.tokeniser, Part::validation);
  std::size_t t = 0, v = 0;
  const std::string text = read_file(file.path);
  for (const std::string_view document : documents_of(text, 3)) {
    const bool trains = training.compare(t, document.size(), document) == 0;
    const bool validates = validation.compare(v, document.size(), document) == 0;
    CHECK(trains != validates);
    (trains ? t : v) += document.size();
  }
  CHECK(t == training.size());
  CHECK(v == validation.size());
  CHECK(corpus.size(Part::training).documents + corpus.size(Part::validation).documents == 20);
  CHECK(corpus.size(Part::training).bytes == static_cast<std::int64_t>(training.size()));
  CHECK(corpus.bytes_per_token(Part::training) == 1);
}

TEST_CASE("a text that is one document validates on its end, from a line's beginning on") {
  std::string text;
  for (int line = 0; line < 50; ++line) text += to_text("line ", line, line % 5 ? "\n" : "\n\n");
  const BookFile file(text);
  const Corpus corpus({.data = file.path}, *file.tokeniser);
  CHECK((corpus.size(Part::training).documents == 1 && corpus.size(Part::validation).documents == 1));
  const index_t cut = corpus.size(Part::training).bytes;
  CHECK(text[static_cast<std::size_t>(cut) - 1] == '\n');
  CHECK(std::abs(static_cast<double>(cut) - 0.9 * static_cast<double>(text.size())) < 10);
  CHECK(cut + corpus.size(Part::validation).bytes == static_cast<index_t>(text.size()));
  CHECK(has(corpus.summary(), "end of " + file.path));
  const BookFile line(std::string(9000, 'a') + "\n\n");  // no line begins near the cut
  CHECK(Corpus({.data = line.path}, *line.tokeniser).size(Part::validation).bytes == 901);
}

TEST_CASE("an empty text, one byte and too few tokens are refused by name") {
  const BookFile file;
  const std::string empty = file.scratch / "empty.txt", latin = file.scratch / "latin.txt",
                    one = file.scratch / "one.txt";
  write_file(empty, ""), write_file(latin, "fine\ncaf\xE9\n"), write_file(one, "x");
  for (const std::string& path : {empty, file.scratch / "none", std::string("/dev/null"), one})
    CHECK(has(refusal({.data = path}), path + ": "));
  const Corpus single({.data = one, .validation_share = 0}, *file.tokeniser);
  CHECK(has(error_text([&] { single.require_window(Part::training, 16); }), "training text: 1 token given; 17"));
  const Corpus whole({.data = latin, .validation_share = 0}, *file.tokeniser);
  CHECK_NOTHROW(whole.require_window(Part::training, 9));
  CHECK_THROWS_AS(whole.require_window(Part::training, 10), FileError);
  CHECK(decoded(whole, *file.tokeniser, Part::training) == "fine\ncaf\xE9\n");  // bytes are kept as they are
}

TEST_CASE("windows: inputs and the tokens after them, uniform over the text, the same for one seed and part") {
  const BookFile file;
  const Corpus corpus({.data = file.path, .validation_share = 0}, *file.tokeniser);
  const std::string text = read_file(file.path);
  const WindowOptions options{.length = 24, .sequences = 8};
  const auto starts = training_starts(corpus, options, 3, 5);
  CHECK(starts == training_starts(corpus, options, 3, 5));
  CHECK(starts != training_starts(corpus, options, 3, 6));
  CHECK(starts != training_starts(corpus, options, 4, 5));
  const Windows windows = windows_at(corpus, Part::training, starts, 24);
  for (index_t b = 0; b < 8; ++b) {
    for (index_t t = 0; t < 24; ++t) {
      const auto at = static_cast<std::size_t>(starts[static_cast<std::size_t>(b)] + t);
      CHECK(windows.inputs.at({b, t}) == static_cast<unsigned char>(text[at]));
      CHECK(windows.targets.at({b, t}) == static_cast<unsigned char>(text[at + 1]));
    }
  }
  const index_t places = static_cast<index_t>(text.size()) - 24;
  index_t least = places, most = 0;
  for (std::int64_t part = 1; part <= 2000; ++part)
    for (const index_t start : training_starts(corpus, options, 0, part))
      least = std::min(least, start), most = std::max(most, start);
  CHECK((least == 0 && most == places - 1));
}

TEST_CASE("all of a text is scored by windows in a row: each token but the first is a target once") {
  TransformerOptions sizes = small("rope");
  sizes.vocabulary = 256;
  const auto model = random_decoder(sizes);
  const std::string text = book(20);
  for (const index_t targets : {1, 2, 8, 9, 10, 18, 31, 45}) {
    CAPTURE(targets);
    const BookFile file(text.substr(0, static_cast<std::size_t>(targets) + 1));
    const Corpus corpus({.data = file.path, .validation_share = 0}, *file.tokeniser);
    const LanguageScore found = score(*model, corpus, Part::training, {.length = 9, .sequences = 2}, 0);
    CHECK(found.tokens == targets);
    double nats = 0;
    for (index_t target = 0; target < targets; ++target) {
      const index_t window = target / 9, last = std::min<index_t>(targets, 9),
                    start = std::min(window * 9, targets - last);
      const Windows one = windows_at(corpus, Part::training, {start}, target - start + 1);
      nats += token_losses(*model, one, 1)[0][0];
    }
    CHECK(found.loss == doctest::Approx(nats / static_cast<double>(targets)).epsilon(1e-9));
  }
  const BookFile one("x");
  const Corpus corpus({.data = one.path, .validation_share = 0}, *one.tokeniser);
  CHECK_THROWS_WITH_AS(
      (void)score(*model, corpus, Part::training, {9, 2}, 0), doctest::Contains("1 token given; 2"), FileError);
}

TEST_CASE("text: JSON lines are known by their content, and what is taken otherwise or left out is said") {
  const Scratch scratch("language-json-lines");
  const TokeniserPointer bytes = byte_tokeniser();
  const std::string lines = "{\"text\": \"one two\"}\n{\"text\": \"\"}\n{\"text\": \"three\"}\n";
  const auto read = [&](const std::string& name, const std::string& text) {
    write_file(scratch / name, text);
    const Corpus corpus({.data = scratch / name, .validation_share = 0}, *bytes);
    return std::pair(decoded(corpus, *bytes, Part::training), corpus.summary());
  };
  for (const std::string name : {"a.jsonl", "a.ndjson", "a.json", "a.txt", "a"}) {
    CAPTURE(name);
    const auto [text, said] = read(name, (name == "a" ? "\xEF\xBB\xBF" : "") + lines);
    CHECK(text == "one twothree");
    CHECK(has(said, "1 of 3 lines"));
    CHECK(has(said, "JSON lines") == (name != "a.jsonl" && name != "a.ndjson"));
  }
  const std::string bodies = "{\"body\": \"one\"}\n";
  for (const auto& [name, text] : {std::pair("b.txt", bodies), {"c.json", "[\n{\"text\": \"one\"}\n]\n"}}) {
    const auto found = read(name, text);
    CHECK(found.first == text);
    CHECK_MESSAGE(has(found.second, "text 'text':"), found.second);
  }
  write_file(scratch / "bad.jsonl", "{\"text\": \"fine\"}\n{\"body\": \"x\"}\n");
  CHECK(has(refusal({.data = scratch / "bad.jsonl"}), "bad.jsonl: line 2:"));
  for (const char* plain : {"{ is a brace\n", "one {\"text\": \"two\"}\n", "{\"text\": 1"})
    CHECK_FALSE(has(read("d.txt", plain).second, "note: "));
}

TEST_CASE("text: all below a folder, but what patterns leave out") {
  const Scratch scratch("language-tree");
  for (const char* folder : {"src/deep", "src/.git"}) fs::create_directories(scratch.folder / folder);
  for (const char* name :
      {"src/b.cpp", "src/a.h", "src/deep/c.cpp", "src/deep/notes.txt", "src/.git/d.cpp", "src/.e.cpp"})
    write_file(scratch / name, std::string(name) + "\n");
  write_file(scratch / "src/empty.cpp", "");
  fs::create_symlink(scratch.folder / "src/b.cpp", scratch.folder / "src/link.cpp");
  const auto names = [&](const std::vector<std::string>& include, const std::vector<std::string>& exclude) {
    std::string all, notes;
    for (const std::string& file : files_below(scratch / "src", include, exclude, notes))
      all += fs::path(file).lexically_relative(scratch.folder / "src").string() + ' ';
    return all;
  };
  CHECK(names({}, {}) == "a.h b.cpp deep/c.cpp deep/notes.txt ");
  CHECK(names({"*.cpp", "*.h"}, {}) == "a.h b.cpp deep/c.cpp ");
  CHECK(names({"*.cpp"}, {"deep/*"}) == "b.cpp ");
  CHECK(names({}, {"c.cpp"}) == "a.h b.cpp deep/notes.txt ");
  CHECK_THROWS_WITH_AS((void)names({"*.py"}, {}), doctest::Contains("--exclude leave"), InputError);
  const Corpus corpus({.data = scratch / "src", .include = "*.cpp", .validation_share = 0}, *byte_tokeniser());
  CHECK((corpus.size(Part::training).documents == 2 && has(corpus.summary(), "links (1)")));
}

TEST_CASE(
    "token files: a document of numbers each, with the bytes and words of their tokens; other lists are refused") {
  const Scratch scratch("token-files");
  const auto write = [&](const std::string& name, const std::vector<double>& ids, const std::string& tokens) {
    const Tensor numbers = Tensor::of(ids, {std::ssize(ids)}, DType::i32);
    (void)write_safetensors(scratch / name, {{{"tokens", numbers}}, {{"tokeniser", list(tokens, 3)}}});
    return scratch / name;
  };
  const std::string three = R"("a", " b\u00c3", "\u00a9.")",
                    first = write("a.safetensors", {0, 1, 2, 0, 1, 2, 0, 1, 2, 1}, three),
                    second = write("b.safetensors", {2, 1}, three);
  const TokeniserPointer tokeniser = tokeniser_from_json(TextFile(first).list, first);
  const Corpus corpus({.data = first, .test_data = second, .validation_share = 0.3}, *tokeniser);
  CHECK(corpus.slice(Part::training, 0, 8) == TokenIds{0, 1, 2, 0, 1, 2, 0, 1});
  CHECK(corpus.slice(Part::validation, 0, 2) == TokenIds{2, 1});
  CHECK(corpus.slice(Part::test, 0, 2) == TokenIds{2, 1});
  CHECK((corpus.size(Part::training).bytes == 16 && corpus.size(Part::training).words == 4));
  const Passage passage = passage_to_read({.data = first, .test_data = second, .validation_share = 0.3}, corpus.hash());
  CHECK((passage.text == "2\n1\n" && has(passage.place, "a.safetensors: line 9")));

  const std::string other = write("c.safetensors", {0, 1, 2}, R"("a", "b", "c")"),
                    beyond = write("d.safetensors", {0, 3}, three);
  CHECK(has(refusal({.data = first, .more = {other}}, *tokeniser), "c.safetensors: its"));
  CHECK(has(refusal({.data = first}), "a.safetensors: its"));
  CHECK(has(refusal({.data = beyond, .validation_share = 0}, *tokeniser), "line 2, byte 2:"));
  (void)write_safetensors(scratch / "e.safetensors", {{{"tokens", Tensor::zeros({2})}}});
  CHECK(has(refusal({.data = scratch / "e.safetensors"}), "tensor 'tokens'"));
  CHECK(has(refusal({.data = write("f.safetensors", {}, three)}, *tokeniser), "no token in it"));
}

TEST_CASE("perplexities per byte and per word are of the same nats as the one per token") {
  const Scratch scratch("language-units");
  write_file(scratch / "text", "0 2 1 2 1 2 1 3");
  const TokeniserPointer words = tokeniser_from_json(list(R"("aa", " aa", " bb", "\n")", 4), "test");
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
  // The blanks of Unicode part words, U+200B is none, and a byte that is not UTF-8 belongs to its word.
  write_file(scratch / "blanks",
      "un\u00A0deux\u3000trois\u2028quatre\x1C"
      "cinq\u200B six\xC2 \xA0sept\u00A0\n");
  const Corpus blanks({.data = scratch / "blanks", .validation_share = 0}, *byte_tokeniser());
  CHECK(blanks.size(Part::training).words == 7);
}

TEST_CASE("corpus: what is read for people is the text that was set aside") {
  const Scratch scratch("passage");
  std::vector<std::string> all;
  for (int c = 0; c < 12; ++c) all.push_back(to_text("CHAPTER ", c, ".\n", std::string(40, 'x'), "\n\n\n\n"));
  const std::string text = joined({all.begin(), all.end()});
  write_file(scratch / "book.txt", text);
  CorpusOptions options{.data = scratch / "book.txt", .validation_share = 0.3};
  const std::string hash = Corpus(options, *byte_tokeniser()).hash();
  const Passage passage = passage_to_read(options, hash);
  const std::vector<bool> aside = validation_documents({all.begin(), all.end()}, 0.3, 0);
  const auto first = static_cast<std::size_t>(std::ranges::find(aside, true) - aside.begin());
  REQUIRE(first > 0);
  const std::size_t at = text.find(all[first]);
  CHECK(passage.text.starts_with(all[first]));
  CHECK(passage.place == to_text(scratch / "book.txt", ": line ", 1 + count(text.substr(0, at), "\n"), ", byte ", at));
  CHECK(static_cast<int>(std::ranges::count(aside, true)) == count(passage.text, "CHAPTER"));
  CHECK(has(passage_to_read(options, "another").about, "has changed"));
  options.validation_share = 0;
  CHECK(passage_to_read(options, hash).text.starts_with("CHAPTER 0."));
  options = {.data = scratch / "book.txt", .validation_data = scratch / "lines.jsonl"};
  write_file(scratch / "lines.jsonl", "{\"text\": \"one \"}\n{\"text\": \"two\"}\n");
  CHECK(passage_to_read(options, hash).text == "one two");
}

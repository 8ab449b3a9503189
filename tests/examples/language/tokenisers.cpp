// Tokenisers: UTF-8, round trips of every byte, files, errors.
#include "examples/whence/language/tokeniser.h"

#include <algorithm>

#include "examples/whence/cli/text.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::language;
using namespace whence::test;
using namespace std::string_literals;

namespace {

// Returns `length` characters drawn from `alphabet`.
std::string soup(std::size_t length, std::uint64_t seed, const std::vector<std::string>& alphabet) {
  const Stream stream(seed, "soup");
  std::string text;
  for (std::size_t i = 0; i < length; ++i)
    text += alphabet[stream.below(i, static_cast<std::uint32_t>(alphabet.size()))];
  return text;
}

const std::vector<std::string> letters{"a", "b", "n", " ", "\n", "1", ".", "é", "猫", "\r", "\0"s, "\t", "😀"};

// True if the text is UTF-8.
bool is_whole(std::string_view text) {
  while (!text.empty()) {
    const CodePoint code = first_code_point(text);
    if (!code.valid) return false;
    text.remove_prefix(code.bytes);
  }
  return true;
}

TokeniserPointer listed(const std::string& tokens, int vocabulary) {
  return tokeniser_from_json(to_text(R"({"format": "whence tokeniser", "version": 1, "kind": "tokens", "vocabulary": )",
                                 vocabulary, R"(, "tokens": [)", tokens, "]}"),
      "here");
}

}  // namespace

TEST_CASE("UTF-8: what is valid and what is not") {
  for (const char* good : {"a", "é", "猫", "😀", "\xC2\x80", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    CHECK(is_whole(good));
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
           "\xF4\x90\x80\x80", "\xF5", "\xE7\x8C", "\xC3"})
    CHECK_FALSE(is_whole(bad));
  CHECK((first_code_point("😀").value == 0x1F600 && first_code_point("\xF4\x8F\xBF\xBF").value == 0x10FFFF));
}

TEST_CASE("UTF-8: a stream gives whole characters only, and the same text however it is cut") {
  const std::string text = "na\u00efve 猫😀\xE7\x8C|\xF0\x9F\x98|\xC0\xAF\xED\xA0\x80|\0|\xE7"s;
  const std::string expected =  // as Python decodes it
      "na\u00efve 猫😀\uFFFD|\uFFFD|\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD|\0|\uFFFD"s;
  for (const std::size_t step : {1u, 2u, 3u, 5u, 100u}) {
    Utf8Stream stream;
    std::string joined;
    for (std::size_t i = 0; i < text.size(); i += step) {
      const std::string part = stream.push(std::string_view(text).substr(i, step));
      CHECK(is_whole(part));
      joined += part;
    }
    CHECK(joined + stream.finish() == expected);
    CHECK(stream.finish().empty());
  }
  Utf8Stream stream;
  CHECK(stream.push("\xF0\x9F\x98").empty());
  CHECK(stream.push("\x80!") == "😀!");
}

TEST_CASE("every kind: there and back, byte for byte, also after saving and loading") {
  const Scratch scratch("kinds");
  const std::string text = soup(3000, 5, letters), numbers = "0 3\n1 2 2\t1\n";
  const auto kinds = {
      byte_tokeniser, +[] { return listed(R"("a", " b\u00c3", "\u00a9\u0000\"", "<|endoftext|>")", 6); }};
  for (const auto& make : kinds) {
    const TokeniserPointer tokeniser = make();
    CAPTURE(tokeniser->kind());
    const bool listed = tokeniser->reads_numbers();
    const TokenIds ids = tokeniser->encode(listed ? numbers : text);
    CHECK(tokeniser->decode(ids) == (listed ? "a<|endoftext|> b\xC3\xA9\0\"\xA9\0\" b\xC3"s : text));
    tokeniser->save(scratch / "tokeniser.json");
    const TokeniserPointer loaded = load_tokeniser(scratch / "tokeniser.json");
    CHECK(loaded->kind() == tokeniser->kind());
    CHECK(loaded->vocabulary() == tokeniser->vocabulary());
    CHECK(loaded->encode(listed ? numbers : text) == ids);
    CHECK(loaded->json() == tokeniser->json());
    CHECK(loaded->hash() == sha256(read_file(scratch / "tokeniser.json")));
    CHECK(make()->hash() == loaded->hash());
  }
}

TEST_CASE("bytes take every byte; a token outside the vocabulary is no text") {
  std::string all;
  for (int k = 0; k < 512; ++k) all += static_cast<char>(k * 7 + k / 256);
  CHECK(byte_tokeniser()->decode(byte_tokeniser()->encode(all)) == all);
  for (const TokenId beyond : {256, -1}) CHECK_THROWS_AS((void)byte_tokeniser()->decode(TokenIds{1, beyond}), Error);
}

TEST_CASE("a text longer than a part is encoded as if it were one") {
  std::string text, numbers;
  TokenIds ids;
  while (text.size() < (std::size_t{5} << 19)) text += "a b猫\n";
  while (numbers.size() < (std::size_t{5} << 19)) {
    ids.push_back(static_cast<TokenId>(ids.size() % 1000));
    numbers += std::to_string(ids.back()) + (ids.size() % 7 ? " " : "  \n ");
  }
  const TokeniserPointer tokens = listed("", 1000);
  CHECK(tokens->encode(numbers) == ids);
  TokenIds first;
  CHECK(tokens->encode_part(numbers, first) < numbers.size());
  CHECK(byte_tokeniser()->decode(byte_tokeniser()->encode(text)) == text);
}

TEST_CASE("a run of a token file reads numbers: anything else is refused with its place and what to do") {
  const TokeniserPointer tokens = listed(R"("a", "b")", 5);
  CHECK((tokens->vocabulary() == 5 && tokens->named() == 2 && tokens->end_of_text() == -1));
  CHECK(tokens->decode(tokens->encode(" 1 0 4\n")) == "ba");
  // no structured binding: clang 16 with OpenMP cannot capture one
  for (const auto& each : {std::pair("the cat", 0), {"0 1 cat", 4}, {"1 5", 2}, {"1 -1", 2}, {"1 2,3", 2},
           {"0 99999999999999999999", 2}, {" \n", 2}, {"1.0", 0}}) {
    const std::string reason = error_text([&] { (void)tokens->encode(each.first); });
    CHECK_MESSAGE(has(reason, to_text("byte ", each.second, ": no token number of 0 to 4")), reason);
    CHECK(has(reason, "tokenizer.json --prompt"));
  }
  CHECK(listed(R"("a", "<|endoftext|>")", 2)->end_of_text() == 1);
  CHECK(byte_tokeniser()->named() == 256);
}

TEST_CASE("damaged, foreign and newer tokeniser files are refused by name") {
  const Scratch scratch("damaged");
  const std::string path = scratch / "t.json";
  const std::string head = R"({"format": "whence tokeniser", "version": 1, "kind": )";
  std::vector<std::pair<std::string, const char*>> rows{{"", "no file"},
      {R"({"format": "whence tokeniser", "version": 2, "kind": "bytes"})", "'version' is 2"},
      {head + R"("syllables"})", "kind 'syllables'"}, {head + R"("words"})", "tokens.py makes"},
      {head + R"("tokens"})", "field 'tokens'"},
      {head + R"("tokens", "tokens": ["a", "\u0100"], "vocabulary": 2})", "a token has the character 256"}};
  for (const char* vocabulary : {"1", "99999999", "2.5"})
    rows.emplace_back(
        to_text(head, R"("tokens", "tokens": ["a", "b"], "vocabulary": )", vocabulary, "}"), "'vocabulary' is");
  for (const auto& [content, part] : rows) {
    write_file(path, content);
    const std::string reason = error_text([&] { (void)load_tokeniser(path); });
    CHECK_MESSAGE((reason.starts_with(path) && has(reason, part)), reason);
  }
  CHECK(has(error_text([&] { (void)load_tokeniser(scratch / "none.json"); }), "cannot read"));
}

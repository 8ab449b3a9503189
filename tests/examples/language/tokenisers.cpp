// Tokenisers: GPT-2's pattern piece by piece, merges against a naive version, round trips of every byte, files, errors.
#include <doctest/doctest.h>
#include <algorithm>
#include <map>
#include <set>

#include "examples/whence/cli/unicode.h"
#include "examples/whence/language/bpe.h"
#include "examples/whence/language/gpt2_text.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/random.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::language;
using namespace whence::test;
using namespace std::string_literals;

namespace {

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> found;
  while (!text.empty()) {
    found.emplace_back(text.substr(0, first_piece(text)));
    text.remove_prefix(found.back().size());
  }
  return found;
}

// Returns `length` characters drawn from `alphabet`, with enough repetition for merges.
std::string soup(std::size_t length, std::uint64_t seed, const std::vector<std::string>& alphabet) {
  const Stream stream(seed, "soup");
  std::string text;
  for (std::size_t i = 0; i < length; ++i)
    text += alphabet[stream.below(i, static_cast<std::uint32_t>(alphabet.size()))];
  return text;
}

const std::vector<std::string> letters{
    "a", "b", "a", "n", " ", " ", "\n", "1", ".", "'s", "é", "猫", "\r\n", "\0"s, "\xFF", "\t", "😀"};

using Spellings = std::vector<std::string>;
Spellings letters_of(const std::string& piece) {
  Spellings word;
  for (const char c : piece) word.push_back(spelled({&c, 1}));
  return word;
}

// Merges each adjacent pair (left, right), from left to right.
void merge(Spellings& word, const std::string& left, const std::string& right) {
  for (std::size_t i = 0; i + 1 < word.size(); ++i)
    if (word[i] == left && word[i + 1] == right) word[i] += right, word.erase(word.begin() + static_cast<long>(i) + 1);
}

// Merges the most frequent pair, counted from scratch each time. Ties go to the pair of smaller numbers.
std::vector<std::string> naive_merges(const std::string& text, index_t vocabulary) {
  Spellings tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(spelled(std::string(1, static_cast<char>(byte))));
  std::sort(tokens.begin(), tokens.end());
  const auto number_of = [&](const std::string& token) {
    return std::find(tokens.begin(), tokens.end(), token) - tokens.begin();
  };
  std::vector<Spellings> words;
  for (const std::string& piece : pieces(text)) words.push_back(letters_of(piece));
  std::vector<std::string> merges;
  while (static_cast<index_t>(tokens.size()) < vocabulary) {
    std::map<std::pair<long, long>, int> counts;
    for (const Spellings& word : words)
      for (std::size_t i = 0; i + 1 < word.size(); ++i) ++counts[{number_of(word[i]), number_of(word[i + 1])}];
    const auto best =
        std::max_element(counts.begin(), counts.end(), [](auto& a, auto& b) { return a.second < b.second; });
    if (best == counts.end() || best->second < 2) break;
    const std::string left = tokens[static_cast<std::size_t>(best->first.first)],
                      right = tokens[static_cast<std::size_t>(best->first.second)];
    merges.push_back(left + ' ' + right);
    if (std::find(tokens.begin(), tokens.end(), left + right) == tokens.end()) tokens.push_back(left + right);
    for (Spellings& word : words) merge(word, left, right);
  }
  return merges;
}

// The tokens of a piece as GPT-2's encoder.py finds them:
// the pair of lowest rank, everywhere from left to right, until none is left.
Spellings naive_encoding(const std::string& piece, const std::vector<std::string>& merges) {
  Spellings word = letters_of(piece);
  while (true) {
    std::size_t best = merges.size();
    for (std::size_t i = 0; i + 1 < word.size(); ++i) {
      const auto found = std::find(merges.begin(), merges.end(), word[i] + ' ' + word[i + 1]);
      best = std::min(best, static_cast<std::size_t>(found - merges.begin()));
    }
    if (best == merges.size()) return word;
    const std::string& pair = merges[best];
    merge(word, pair.substr(0, pair.find(' ')), pair.substr(pair.find(' ') + 1));
  }
}

// Returns the numbers of a byte-pair encoding: bytes by their spelling, then merges.
std::map<std::string, std::int64_t> numbers_of(const std::vector<std::string>& merges) {
  std::map<std::string, std::int64_t> numbers;
  Spellings bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(spelled(std::string(1, static_cast<char>(byte))));
  std::sort(bytes.begin(), bytes.end());
  for (const std::string& byte : bytes) numbers.emplace(byte, std::ssize(numbers));
  for (const std::string& line : merges) {
    const std::size_t blank = line.find(' ');
    numbers.emplace(line.substr(0, blank) + line.substr(blank + 1), std::ssize(numbers));
  }
  return numbers;
}

// Trains on a text: all tokens that occur, or the merges for `vocabulary` tokens.
TokeniserPointer trained(const std::string& kind, const std::string& text, index_t vocabulary = 0) {
  if (kind == "bytes") return byte_tokeniser();
  if (kind == "bpe") {
    const std::vector<std::string> merges = naive_merges(text, vocabulary);
    return bpe_from(numbers_of(merges), merges, "here");
  }
  std::set<std::string> tokens;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t size = kind == "words" ? first_piece(rest) : first_code_point(rest).bytes;
    tokens.emplace(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  return list_from(kind, {tokens.begin(), tokens.end()}, "here");
}

}  // namespace

TEST_CASE("UTF-8: what is valid and what is not") {
  for (const char* good : {"a", "é", "猫", "😀", "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF", "\xEE\x80\x80"})
    CHECK(is_utf8(good));
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
           "\xF4\x90\x80\x80", "\xF5", "\xE7\x8C", "\xC3"})
    CHECK_FALSE(is_utf8(bad));
  for (std::uint32_t code = 0; code < 0x110000; code += 37) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(text, code);
    const CodePoint found = first_code_point(text);
    CHECK((found.valid && found.value == code && found.bytes == text.size()));
  }
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
      CHECK(is_utf8(part));
      joined += part;
    }
    CHECK(joined + stream.finish() == expected);
    CHECK(stream.finish().empty());
  }
  Utf8Stream stream;
  CHECK(stream.push("\xF0\x9F\x98").empty());
  CHECK(stream.push("\x80!") == "😀!");
}

TEST_CASE("letters, numbers, white space") {
  const auto code = [](const char* text) { return first_code_point(text); };
  for (const char* letter : {"a", "Z", "é", "ß", "猫", "ª", "ʰ", "𝒜", "אּ", "ﬁ"}) CHECK(is_letter(code(letter)));
  for (const char* number : {"0", "9", "²", "½", "٣", "Ⅷ", "〇", "①"}) CHECK(is_number(code(number)));
  for (const char* space : {" ", "\t", "\n", "\v", "\f", "\r", "\u0085", "\u00a0", "\u2003", "\u2028", "\u3000"})
    CHECK(is_white_space(code(space)));
  for (const char* other : {"@", "[", "`", "{", "/", ":", "_", "\u0301", "😀", "\u200b", "\xFF", "\x1c", "×", "€"}) {
    CAPTURE(other);
    CHECK_FALSE((is_letter(code(other)) || is_number(code(other)) || is_white_space(code(other))));
  }
}

TEST_CASE("pieces: GPT-2's pattern") {
  using List = std::vector<std::string>;
  CHECK(pieces("Hello world") == List{"Hello", " world"});
  CHECK(pieces("it's we'll they've I'm he'd you're can't o'sullivan") == List{"it", "'s", " we", "'ll", " they", "'ve",
                                                                             " I", "'m", " he", "'d", " you", "'re",
                                                                             " can", "'t", " o", "'s", "ullivan"});
  CHECK(pieces("IT'S 'so") == List{"IT", "'", "S", " '", "so"});  // case counts, and a blank goes with the mark
  CHECK(pieces("a1b22 33") == List{"a", "1", "b", "22", " 33"});
  CHECK(pieces("x!!  y") == List{"x", "!!", " ", " y"});
  CHECK(pieces("a   \n\n b \n") == List{"a", "   \n\n", " b", " \n"});
  CHECK(pieces("a\nb") == List{"a", "\n", "b"});
  CHECK(pieces("a\r\n\r\nb") == List{"a", "\r\n\r", "\n", "b"});
  CHECK(pieces("naïve café² 猫。") == List{"naïve", " café", "²", " 猫", "。"});
  CHECK(pieces("a\u00a0b \u3000 c") == List{"a", "\u00a0", "b", " \u3000", " c"});
  CHECK(pieces("a \u3000c") == List{"a", " ", "\u3000", "c"});  // kept whole
  CHECK(pieces("a \0\xFF\xE7 b"s) == List{"a", " \0\xFF\xE7"s, " b"});
  CHECK(pieces(" ") == List{" "});
}

TEST_CASE("bytes are spelled as GPT-2 spells them") {
  CHECK(spelled(" the\n") == "ĠtheĊ");
  CHECK(spelled("\xC3\xA9") == "Ã©");
  CHECK(spelled(std::string("\0\x7F\xAD", 3)) == "ĀġŃ");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(unspelled(spelled(all)) == all);
  CHECK_FALSE(unspelled("猫").has_value());
}

TEST_CASE("bpe: encoding is GPT-2's loop, also of long runs of one letter") {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    const std::string text = soup(1500, seed, letters), other = soup(700, seed + 10, letters);
    const TokeniserPointer tokeniser = trained("bpe", text, 330);
    const std::vector<std::string> merges = naive_merges(text, 330);
    std::string ours, naive;
    for (const TokenId id : tokeniser->encode(other)) ours += spelled(tokeniser->token(id)) + ' ';
    for (const std::string& piece : pieces(other))
      for (const std::string& token : naive_encoding(piece, merges)) naive += token + ' ';
    CHECK(ours == naive);
    CHECK(tokeniser->decode(tokeniser->encode(other)) == other);
  }
  const TokeniserPointer runs = trained("bpe", std::string(1000, 'a'), 300);
  for (const std::size_t length : {1u, 2u, 3u, 7u, 1000u, 100001u}) {
    const std::string text(length, 'a');
    CHECK(runs->decode(runs->encode(text)) == text);
  }
  CHECK(runs->encode(std::string(512, 'a')).size() < 10);
}

TEST_CASE("every kind: there and back, byte for byte, also after saving and loading") {
  const Scratch scratch("kinds");
  std::vector<std::string> valid = letters;
  valid.erase(std::remove(valid.begin(), valid.end(), "\xFF"), valid.end());
  const std::string text = soup(3000, 5, valid);
  for (const std::string kind : {"bytes", "characters", "words", "bpe"}) {
    CAPTURE(kind);
    const TokeniserPointer tokeniser = trained(kind, text, 400);
    const TokenIds ids = tokeniser->encode(text);
    CHECK(tokeniser->decode(ids) == text);
    CHECK(std::count(ids.begin(), ids.end(), tokeniser->unknown()) == 0);
    tokeniser->save(scratch / "tokeniser.json");
    const TokeniserPointer loaded = load_tokeniser(scratch / "tokeniser.json");
    CHECK(loaded->kind() == kind);
    CHECK(loaded->vocabulary() == tokeniser->vocabulary());
    CHECK(loaded->encode(text) == ids);
    CHECK(loaded->json() == tokeniser->json());
    CHECK(loaded->hash() == tokeniser->hash());
    CHECK(loaded->hash() == sha256(read_file(scratch / "tokeniser.json")));
    CHECK(trained(kind, text, 400)->hash() == loaded->hash());
  }
}

TEST_CASE("bytes and bpe take every byte; characters name the place of the first that is no UTF-8") {
  std::string all;
  for (int k = 0; k < 512; ++k) all += static_cast<char>(k * 7 + k / 256);
  CHECK(byte_tokeniser()->decode(byte_tokeniser()->encode(all)) == all);
  const TokeniserPointer bpe = trained("bpe", all + all, 300);
  CHECK(bpe->decode(bpe->encode(all)) == all);
  const TokeniserPointer characters = trained("characters", "abc");
  const std::string reason = error_text([&] { (void)characters->encode("ab\xC3!"); });
  CHECK_MESSAGE(has(reason, "byte 2: not UTF-8"), reason);
}

TEST_CASE("what is not in the vocabulary is unknown, and decodes as U+FFFD") {
  const TokeniserPointer characters = trained("characters", "banana");  // unknown, a, b, n
  CHECK(characters->vocabulary() == 4);
  CHECK(characters->encode("bad") == TokenIds{2, 1, 0});
  CHECK(characters->decode(TokenIds{2, 1, 0}) == "ba\uFFFD");
  const TokeniserPointer words = list_from("words", {" a", " cat", ","}, "here");
  CHECK(words->decode(words->encode("the cat, a dog")) == "\uFFFD cat, a\uFFFD");
}

TEST_CASE("a text longer than a part is encoded as if it were one") {
  std::string text;
  while (text.size() < (std::size_t{5} << 19)) text += "the cat's 12 naïve猫 \n\n dogs ";
  const TokeniserPointer bpe = trained("bpe", text.substr(0, 2000), 300);
  TokenIds pieces_alone;
  std::map<std::string, TokenIds> known;
  for (const std::string& piece : pieces(text)) {
    const auto [found, is_new] = known.try_emplace(piece);
    if (is_new) found->second = bpe->encode(piece);
    pieces_alone.insert(pieces_alone.end(), found->second.begin(), found->second.end());
  }
  CHECK(bpe->encode(text) == pieces_alone);
  TokenIds first;
  CHECK(bpe->encode_part(text, first) < text.size());
  for (const std::string kind : {"bytes", "characters", "words"}) {
    const TokeniserPointer tokeniser = trained(kind, text);
    CHECK(tokeniser->decode(tokeniser->encode(text)) == text);
  }
}

TEST_CASE("GPT-2's files: read, refused when they contradict each other, special tokens never read out of text") {
  const Scratch scratch("gpt2");
  const std::string text = soup(900, 8, letters) + " banana <|endoftext|>";
  const std::vector<std::string> lines = naive_merges(text, 300);
  const TokeniserPointer tokeniser = trained("bpe", text, 300);
  const std::string vocabulary = scratch / "vocab.json", merges = scratch / "merges.txt";
  Json::Fields numbers;
  for (const auto& [token, number] : numbers_of(lines)) numbers.push_back({token, number});
  write_file(vocabulary, Json(numbers).line());
  std::string all = "#version: 0.2\n";
  for (const std::string& line : lines) all += line + "\r\n";  // as Windows has them
  write_file(merges, all);
  CHECK(read_gpt2_files(vocabulary, merges)->json() == tokeniser->json());
  const std::string merge = lines.at(0);
  CHECK(tokeniser->end_of_text() == -1);

  std::string table = read_file(vocabulary);
  table.insert(table.size() - 1, to_text(",\"<|endoftext|>\":", tokeniser->vocabulary()));
  write_file(vocabulary, table);
  const TokeniserPointer with_end = read_gpt2_files(vocabulary, merges);
  CHECK(with_end->end_of_text() == tokeniser->vocabulary());
  CHECK(with_end->encode(text) == tokeniser->encode(text));
  CHECK(with_end->decode(TokenIds{with_end->end_of_text()}) == "<|endoftext|>");

  const auto refusal = [&](const std::string& new_table, const std::string& new_merges) {
    write_file(vocabulary, new_table), write_file(merges, new_merges);
    return error_text([&] { (void)read_gpt2_files(vocabulary, merges); });
  };
  CHECK(has(refusal("{\"a\": 0}", ""), "no token for byte 0"));
  CHECK(has(refusal("{\"a\": 1}", ""), "token 'a' has number 1"));
  CHECK(has(refusal("[1]", ""), "no vocab.json of GPT-2"));
  CHECK(has(refusal("{", ""), "no vocab.json of GPT-2"));
  CHECK(has(refusal(table, "q z\n"), "'qz' is no token"));
  for (const char* line : {"qz\n", "a b c\n", " a\n", "a \n"}) CHECK(has(refusal(table, line), "not two tokens"));
  CHECK(has(refusal(table, merge + "\n" + merge + "\n"), "merge 1 is '" + merge + "', which merge 0 is already"));
}

TEST_CASE("damaged, foreign and newer tokeniser files are refused by name") {
  const Scratch scratch("damaged");
  const std::string path = scratch / "t.json";
  const auto refusal = [&](const std::string& content) {
    write_file(path, content);
    const std::string reason = error_text([&] { (void)load_tokeniser(path); });
    CHECK_MESSAGE(reason.starts_with(path), reason);
    return reason;
  };
  const std::string head = R"({"format": "whence tokeniser", "version": 1, "kind": )";
  CHECK(has(refusal(""), "no file of a tokeniser"));
  CHECK(has(refusal("\x80\x02}q"), "no file of a tokeniser"));  // a pickle
  CHECK(has(refusal(std::string(100000, '[')), "nests deeper"));
  CHECK(has(refusal(byte_tokeniser()->json() + '\0' + "rest"), "holds a NUL"));
  CHECK(has(refusal("[]"), "no file of a tokeniser"));
  CHECK(has(refusal(R"({"model": {}})"), "no file of a tokeniser"));
  CHECK(has(refusal(R"({"format": "whence tokeniser", "version": 2, "kind": "bytes"})"), "'version' is 2"));
  CHECK(has(refusal(head + R"("syllables"})"), "kind 'syllables' given"));
  CHECK(has(refusal(head + R"("words"})"), "no field 'words'"));
  CHECK(has(refusal(head + R"("words", "words": ["a", "a"]})"), "entry 1 is entry 0 again"));
  CHECK(has(refusal(head + R"("characters", "characters": ["ab"]})"), "no single character"));
  CHECK(has(refusal(head + R"("characters", "characters": [""]})"), "is empty"));
  CHECK(has(error_text([&] { (void)load_tokeniser(scratch / "none.json"); }), "cannot read"));
}

TEST_CASE("a token beyond the vocabulary is refused with its place, a model of another vocabulary with both sizes") {
  const TokeniserPointer tokeniser = trained("characters", "abc");
  CHECK(error_text([&] {
    (void)tokeniser->decode(TokenIds{1, 4});
  }) == "decode: token 4 given at place 1; 0 to 3 required; is it of another tokeniser?");
  CHECK(has(error_text([&] { (void)tokeniser->decode(TokenIds{-1}); }), "token -1 given"));
  CHECK(has(error_text([&] { require_same_vocabulary(*tokeniser, 5); }), "it has 4 tokens and the model 5"));
  CHECK_NOTHROW(require_same_vocabulary(*tokeniser, 4));
}

TEST_CASE("rows of a model beyond the vocabulary are tokens without a text, there and back") {
  std::map<std::string, std::int64_t> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes[spelled(std::string(1, static_cast<char>(byte)))] = byte;
  const TokeniserPointer padded = bpe_from(bytes, {}, "test", 320);
  CHECK(padded->vocabulary() == 320);
  CHECK(padded->named() == 256);
  CHECK(padded->token(255) == "\xFF");
  CHECK(padded->decode(TokenIds{'a', 256, 319, 'b'}) == "ab");
  CHECK(tokeniser_from_json(padded->json(), "test")->json() == padded->json());
  CHECK(tokeniser_from_json(padded->json(), "test")->named() == 256);
  CHECK(bpe_from(bytes, {}, "test")->named() == 256);
  CHECK(byte_tokeniser()->named() == 256);
  const std::string before = "\"vocabulary\": 320", after = "\"vocabulary\": 99999999";
  std::string many = padded->json();
  many.replace(many.find(before), before.size(), after);
  CHECK(has(error_text([&] { (void)tokeniser_from_json(many, "test"); }), "'vocabulary' is 99999999"));
}

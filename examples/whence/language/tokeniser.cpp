#include "examples/whence/language/tokeniser.h"

#include <algorithm>
#include <charconv>

#include "examples/whence/cli/json.h"
#include "examples/whence/cli/text.h"
#include "nn/io/files.h"

namespace whence::language {
namespace {

constexpr std::uint64_t largest_tokeniser = 1 << 28;  // far above any vocabulary: refuses a wrong file before parsing
constexpr std::int64_t most_tokens = 1 << 22;
constexpr std::size_t part_bytes = std::size_t{1} << 20;

constexpr const char* blanks = " \t\r\n";

constexpr const char* kinds[] = {"bytes", "tokens"};

// Returns the bytes that a token file spells by characters U+0000 to U+00FF, because JSON has no bytes.
std::string bytes_of(std::string_view spelled, const Json& file) {
  std::string bytes;
  while (!spelled.empty()) {
    const CodePoint code = first_code_point(spelled);
    if (code.value > 0xFF)
      file.refuse(to_text("a token has the character ", code.value, "; 0 to 255, each for a byte, required"));
    bytes += static_cast<char>(code.value);
    spelled.remove_prefix(code.bytes);
  }
  return bytes;
}

// Appends the number at the front of `text`, and returns the bytes to the next one; 0: there is no such number.
std::size_t take_number(std::string_view text, index_t vocabulary, TokenIds& ids) {
  TokenId id = -1;
  const auto read =
      static_cast<std::size_t>(std::from_chars(text.data(), text.data() + text.size(), id).ptr - text.data());
  const std::size_t next = std::min(text.find_first_not_of(blanks, read), text.size());
  if (id < 0 || id >= vocabulary || (next == read && next < text.size())) return 0;
  ids.push_back(id);
  return next;
}

}  // namespace

Tokeniser::Tokeniser(Kind kind, std::vector<std::string> tokens, std::string json, index_t rows)
    : kind_(kind), tokens_(std::move(tokens)), json_(std::move(json)), named_(std::ssize(tokens_)) {
  if (const auto end = std::ranges::find(tokens_, "<|endoftext|>"); end != tokens_.end())
    end_of_text_ = static_cast<TokenId>(end - tokens_.begin());
  tokens_.resize(static_cast<std::size_t>(std::max(named_, rows)));
}

std::size_t Tokeniser::encode_part(std::string_view text, TokenIds& ids) const {
  if (text.empty()) return 0;
  std::size_t done = kind_ == Kind::tokens ? std::min(text.find_first_not_of(blanks), text.size()) : 0, taken = 1;
  do {
    const std::string_view rest = text.substr(done);
    if (kind_ == Kind::bytes)
      ids.push_back(static_cast<unsigned char>(rest[0]));
    else
      taken = take_number(rest, vocabulary(), ids);
    if (taken == 0)
      throw UnfitText(done,
          to_text("no token number of 0 to ", vocabulary() - 1, ", and a run of a token file reads numbers, not text; ",
              "`examples/experiments/tokens.py tokenizer.json --prompt TEXT` prints them, and ",
              "generate and look of `import whence` take them"));
    done += taken;
  } while (done < text.size() && done < part_bytes);
  return done;
}

TokenIds Tokeniser::encode(std::string_view text) const {
  TokenIds ids;
  for (std::size_t done = 0; done < text.size();) {
    try {
      done += encode_part(text.substr(done), ids);
    } catch (const UnfitText& unfit) { throw UnfitText(done + unfit.byte, unfit.reason); }
  }
  return ids;
}

std::string Tokeniser::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (std::size_t at = 0; at < ids.size(); ++at) {
    const TokenId id = ids[at];
    if (id < 0 || id >= vocabulary()) {
      throw FileError("decode: token ", id, " given at place ", at, "; 0 to ", vocabulary() - 1,
          " required; is it of another tokeniser?");
    }
    text += token(id);
  }
  return text;
}

std::string Tokeniser::kind() const { return kinds[static_cast<std::size_t>(kind_)]; }
std::string Tokeniser::hash() const { return sha256(json()); }
void Tokeniser::save(const std::string& path) const { write_file(path, json()); }

TokeniserPointer load_tokeniser(const std::string& path) {
  return tokeniser_from_json(InputFile(path).text(largest_tokeniser), path);
}

TokeniserPointer tokeniser_from_json(const std::string& text, const std::string& place) {
  constexpr const char* advice = "examples/experiments/tokens.py makes a token file with any tokenizer.json";
  const Json file = Json::read(text, place + ": no file of a tokeniser");
  if (!file.has("format") || file.text("format") != "whence tokeniser")
    throw FileError(place, ": tokeniser: no file of a tokeniser; one required; ", advice);
  (void)file.whole("version", 1, 1);
  const std::string& kind = file.text("kind");
  if (kind == "bytes") return byte_tokeniser();
  if (kind != "tokens")
    throw FileError(place, ": tokeniser: kind '", kind, "' given; bytes or tokens required; ", advice);
  std::vector<std::string> tokens = file.texts(kind);
  for (std::string& each : tokens) each = bytes_of(each, file);
  const index_t rows = file.whole("vocabulary", std::max<index_t>(1, std::ssize(tokens)), most_tokens);
  return std::make_unique<Tokeniser>(Tokeniser::Kind::tokens, std::move(tokens), text, rows);  // as another wrote it
}

TokeniserPointer byte_tokeniser() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const Json file{{"format", "whence tokeniser"}, {"version", 1}, {"kind", "bytes"}, {"vocabulary", 256}};
  return std::make_unique<Tokeniser>(Tokeniser::Kind::bytes, std::move(tokens), file.page(1) + '\n');
}

}  // namespace whence::language

#include "examples/whence/language/tokeniser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_map>

#include "examples/whence/cli/json.h"
#include "examples/whence/cli/unicode.h"
#include "nn/io/files.h"
#include "nn/io/seal.h"

namespace whence::language {
namespace {

constexpr std::uint64_t largest_tokeniser = 1 << 28;  // far above any vocabulary: refuses a wrong file before parsing
constexpr std::int64_t most_tokens = 1 << 22;
constexpr std::size_t part_bytes = std::size_t{1} << 20;

Json head_of(const Tokeniser& tokeniser) {
  return {{"format", "whence tokeniser"}, {"version", 1}, {"kind", tokeniser.kind()},
      {"vocabulary", tokeniser.vocabulary()}};
}

class Bytes final : public Tokeniser {
 public:
  Bytes() {  // token i is byte i; token() gives views into this table
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<char>(i);
  }
  std::string kind() const override { return "bytes"; }
  index_t vocabulary() const override { return 256; }
  std::size_t encode_part(std::string_view text, TokenIds& ids) const override {
    const std::string_view part = text.substr(0, part_bytes);
    for (const char c : part) ids.push_back(static_cast<unsigned char>(c));
    return part.size();
  }
  std::string_view token(TokenId id) const override { return {&bytes_[static_cast<std::size_t>(id)], 1}; }
  std::string json() const override { return head_of(*this).page(1) + '\n'; }

 private:
  std::array<char, 256> bytes_;
};

// Token 0 represents all characters that are not listed.
class Characters final : public Tokeniser {
 public:
  explicit Characters(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
    tokens_.insert(tokens_.begin(), std::string(replacement_character));
    for (std::size_t i = 1; i < tokens_.size(); ++i) ids_.emplace(tokens_[i], static_cast<TokenId>(i));
  }
  std::string kind() const override { return "characters"; }
  index_t vocabulary() const override { return static_cast<index_t>(tokens_.size()); }
  std::size_t encode_part(std::string_view text, TokenIds& ids) const override {
    std::size_t done = 0;
    while (done < text.size() && done < part_bytes) {
      const CodePoint code = first_code_point(text.substr(done));
      if (!code.valid) throw UnfitText(done, "not UTF-8; characters require UTF-8; convert the text, or choose bytes");
      const auto found = ids_.find(text.substr(done, code.bytes));
      ids.push_back(found == ids_.end() ? 0 : found->second);
      done += code.bytes;
    }
    return done;
  }
  std::string_view token(TokenId id) const override { return tokens_[static_cast<std::size_t>(id)]; }
  TokenId unknown() const override { return 0; }
  std::string json() const override {
    const std::vector<std::string> known(tokens_.begin() + 1, tokens_.end());
    return head_of(*this).add(kind(), known).page(1) + '\n';
  }

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, TokenId> ids_;  // into tokens_, which never changes
};

// Keeps its file as it was read, which another program wrote. There each byte of a token is one character, U+0000 to
// U+00FF, because JSON has no bytes.
class Tokens final : public Tokeniser {
 public:
  Tokens(const Json& file, std::string source) : source_(std::move(source)) {
    for (const std::string& spelled : file.texts("tokens")) {
      std::string& bytes = tokens_.emplace_back();
      for (std::string_view rest = spelled; !rest.empty();) {
        const CodePoint code = first_code_point(rest);
        if (code.value > 0xFF)
          file.refuse(to_text("token ", tokens_.size() - 1, " has the character ", code.value,
              "; 0 to 255, each for a byte, required"));
        bytes += static_cast<char>(code.value);
        rest.remove_prefix(code.bytes);
      }
      if (bytes == "<|endoftext|>") end_of_text_ = static_cast<TokenId>(tokens_.size() - 1);
    }
    named_ = std::ssize(tokens_);
    tokens_.resize(static_cast<std::size_t>(file.whole("vocabulary", std::max<index_t>(1, named_), most_tokens)));
  }
  std::string kind() const override { return "tokens"; }
  index_t vocabulary() const override { return std::ssize(tokens_); }
  index_t named() const override { return named_; }
  bool reads_numbers() const override { return true; }
  std::string_view token(TokenId id) const override { return tokens_[static_cast<std::size_t>(id)]; }
  TokenId end_of_text() const override { return end_of_text_; }
  std::string json() const override { return source_; }

  std::size_t encode_part(std::string_view text, TokenIds& ids) const override {
    const auto skip_blanks = [text](std::size_t at) {
      return std::min(text.find_first_not_of(" \t\r\n", at), text.size());
    };
    const char* const end = text.data() + text.size();
    std::size_t done = skip_blanks(0);
    do {
      TokenId id = -1;
      const char* const after = std::from_chars(text.data() + done, end, id).ptr;
      const auto next = static_cast<std::size_t>(after - text.data());
      const std::size_t begins = skip_blanks(next);
      if (id < 0 || id >= vocabulary() || (begins == next && after != end))
        throw UnfitText(done, to_text("no token number of 0 to ", vocabulary() - 1,
                                  ", and a run of a token file reads numbers, not text; ",
                                  "`examples/experiments/tokens.py tokenizer.json --prompt TEXT` prints them, and ",
                                  "generate and look of `import whence` take them"));
      ids.push_back(id);
      done = begins;
    } while (done < text.size() && done < part_bytes);
    return done;
  }

 private:
  std::string source_;
  std::vector<std::string> tokens_;
  index_t named_ = 0;
  TokenId end_of_text_ = -1;
};

}  // namespace

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

std::string Tokeniser::hash() const { return sha256(json()); }

void Tokeniser::save(const std::string& path) const { write_file(path, json()); }

TokeniserPointer load_tokeniser(const std::string& path) {
  return tokeniser_from_json(InputFile(path).text(largest_tokeniser), path);
}

TokeniserPointer tokeniser_from_json(const std::string& text, const std::string& place) {
  const Json file = Json::read(text, place + ": no file of a tokeniser");
  if (!file.has("format") || file.text("format") != "whence tokeniser")
    throw FileError(place, ": tokeniser: no file of a tokeniser; one required; of a tokenizer.json ",
        "examples/experiments/tokens.py makes a token file");
  (void)file.whole("version", 1, 1);
  const std::string& kind = file.text("kind");
  if (kind == "bytes") return byte_tokeniser();
  if (kind == "characters") return character_tokeniser(file.texts(kind), place);
  if (kind == "tokens") return std::make_unique<Tokens>(file, text);
  throw FileError(place, ": tokeniser: kind '", kind, "' given; bytes, characters or tokens required; ",
      "examples/experiments/tokens.py makes a token file with any tokenizer.json");
}

TokeniserPointer byte_tokeniser() { return std::make_unique<Bytes>(); }

TokeniserPointer character_tokeniser(std::vector<std::string> characters, const std::string& place) {
  std::unordered_map<std::string_view, std::size_t> seen;
  for (std::size_t i = 0; i < characters.size(); ++i) {
    const std::string where = to_text(place, ": tokeniser: entry ", i);
    if (characters[i].empty() || first_code_point(characters[i]).bytes != characters[i].size())
      throw FileError(where, " is no single character; one required");
    if (const auto [old, fresh] = seen.emplace(characters[i], i); !fresh)
      throw FileError(where, " is entry ", old->second, " again; each once required");
  }
  return std::make_unique<Characters>(std::move(characters));
}

std::string note_on_unknown(const Tokeniser& tokeniser, std::span<const TokenId> ids) {
  const auto unknown = tokeniser.unknown() < 0 ? 0 : std::ranges::count(ids, tokeniser.unknown());
  if (unknown == 0) return {};
  return to_text(unknown, " of ", ids.size(), " tokens are unknown text: U+FFFD is read in its place");
}

void require_same_vocabulary(const Tokeniser& tokeniser, index_t model_vocabulary) {
  if (tokeniser.vocabulary() == model_vocabulary) return;
  throw FileError("tokeniser: it has ", tokeniser.vocabulary(), " tokens and the model ", model_vocabulary,
      "; the tokeniser that the model was trained with required");
}

}  // namespace whence::language

// Tokenisers that are a list of tokens.
#include <array>
#include <unordered_map>

#include "examples/whence/cli/json.h"
#include "examples/whence/cli/unicode.h"
#include "examples/whence/language/gpt2_text.h"
#include "examples/whence/language/tokeniser.h"

namespace whence::language {
namespace {

constexpr std::size_t part_bytes = std::size_t{1} << 20;
constexpr const char* not_utf8 = "not UTF-8; characters require UTF-8; convert the text, or choose bytes or bpe";

Json file_of(const Tokeniser& tokeniser) {
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
  std::string json() const override { return file_of(*this).page(1) + '\n'; }

 private:
  std::array<char, 256> bytes_;
};

// Returns the piece at byte `at` of a text: one token, or unknown text.
using Cut = std::string_view (*)(std::string_view text, std::size_t at);

std::string_view character_at(std::string_view text, std::size_t at) {
  const CodePoint code = first_code_point(text.substr(at));
  if (!code.valid) throw UnfitText(at, not_utf8);
  return text.substr(at, code.bytes);
}

// Cuts a text into pieces by rule, so that unknown text is one word and not the rest of the text.
std::string_view word_at(std::string_view text, std::size_t at) {
  return text.substr(at, first_piece(text.substr(at)));
}

// A list of texts; token 0 represents all others.
class Listed final : public Tokeniser {
 public:
  Listed(const std::string& kind, Cut cut, std::vector<std::string> tokens)
      : kind_(kind), cut_(cut), tokens_(std::move(tokens)) {
    tokens_.insert(tokens_.begin(), std::string(replacement_character));
    for (std::size_t i = 1; i < tokens_.size(); ++i) ids_.emplace(tokens_[i], static_cast<TokenId>(i));
  }
  std::string kind() const override { return kind_; }
  index_t vocabulary() const override { return static_cast<index_t>(tokens_.size()); }
  std::size_t encode_part(std::string_view text, TokenIds& ids) const override {
    std::size_t done = 0;
    while (done < text.size() && done < part_bytes) {
      const std::string_view token = cut_(text, done);
      const auto found = ids_.find(token);
      ids.push_back(found == ids_.end() ? 0 : found->second);
      done += token.size();
    }
    return done;
  }
  std::string_view token(TokenId id) const override { return tokens_[static_cast<std::size_t>(id)]; }
  TokenId unknown() const override { return 0; }
  std::string json() const override {
    const std::vector<std::string> known(tokens_.begin() + 1, tokens_.end());
    return file_of(*this).add(kind(), known).page(1) + '\n';
  }

 private:
  std::string kind_;
  Cut cut_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, TokenId> ids_;  // into tokens_, which never changes
};

// Checks a list from a file before it is used.
void check_list(const std::vector<std::string>& tokens, bool single, const std::string& place) {
  std::unordered_map<std::string_view, std::size_t> seen;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string where = to_text(place, ": tokeniser: entry ", i);
    if (tokens[i].empty()) throw FileError(where, " is empty; some text required");
    if (single && first_code_point(tokens[i]).bytes != tokens[i].size())
      throw FileError(where, " is no single character; one required");
    if (const auto [old, fresh] = seen.emplace(tokens[i], i); !fresh)
      throw FileError(where, " is entry ", old->second, " again; each once required");
  }
}

Cut cut_of(const std::string& kind) { return kind == "characters" ? character_at : word_at; }

}  // namespace

TokeniserPointer byte_tokeniser() { return std::make_unique<Bytes>(); }

TokeniserPointer list_from(const std::string& kind, std::vector<std::string> tokens, const std::string& place) {
  check_list(tokens, kind == "characters", place);
  return std::make_unique<Listed>(kind, cut_of(kind), std::move(tokens));
}

}  // namespace whence::language

// Text as numbers and back: the two kinds of tokenisers, and their file format.
//   bytes   256 tokens; any file, any byte
//   tokens  a list of the bytes of each token, as a token file has it (corpus.h); its text is token numbers
// Line ends (CRLF too), NUL and white space are characters like any other: decode(encode(text)) is the text,
// byte for byte, except that token numbers decode as the tokens' bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/error.h"
#include "tensor/shape.h"

namespace whence::language {

using TokenId = std::int32_t;
using TokenIds = std::vector<TokenId>;

// Text that a tokeniser cannot take. The caller, who knows the file, adds the place.
class UnfitText : public InputError {
 public:
  UnfitText(std::size_t at_byte, const std::string& why)
      : InputError("byte ", at_byte, ": ", why), byte(at_byte), reason(why) {}
  std::size_t byte;
  std::string reason;
};

class Tokeniser {
 public:
  enum class Kind : unsigned char { bytes, tokens };
  // `rows`: the vocabulary, if longer than the list.
  Tokeniser(Kind kind, std::vector<std::string> tokens, std::string json, index_t rows = 0);
  virtual ~Tokeniser() = default;

  [[nodiscard]] std::string kind() const;
  [[nodiscard]] bool reads_numbers() const { return kind_ == Kind::tokens; }  // true if its text is token numbers
  [[nodiscard]] index_t vocabulary() const { return std::ssize(tokens_); }
  [[nodiscard]] index_t named() const { return named_; }  // tokens with text: a model's table may have more rows
  // Returns the bytes of a token. REQUIRES: 0 <= id < vocabulary().
  [[nodiscard]] std::string_view token(TokenId id) const { return tokens_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] TokenId end_of_text() const { return end_of_text_; }  // <|endoftext|>, where generating stops; -1: none
  [[nodiscard]] const std::string& json() const { return json_; }     // the file that save() writes
  [[nodiscard]] std::string hash() const;                             // its SHA-256
  void save(const std::string& path) const;

  // Appends the tokens of the front of `text`, and returns that front's bytes: all, or about a megabyte. It cuts
  // only where the rest is encoded as if uncut. REQUIRES: text reaches to its end.
  virtual std::size_t encode_part(std::string_view text, TokenIds& ids) const;
  [[nodiscard]] TokenIds encode(std::string_view text) const;  // UnfitText if the kind cannot take the text
  // FileError when an id is outside the vocabulary.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const;

 private:
  Kind kind_;
  std::vector<std::string> tokens_;
  std::string json_;
  index_t named_;
  TokenId end_of_text_ = -1;
};

using TokeniserPointer = std::unique_ptr<const Tokeniser>;

// FileError "FILE: tokeniser: the fault; the requirement".
[[nodiscard]] TokeniserPointer load_tokeniser(const std::string& path);
[[nodiscard]] TokeniserPointer tokeniser_from_json(const std::string& json, const std::string& place);

[[nodiscard]] TokeniserPointer byte_tokeniser();

}  // namespace whence::language

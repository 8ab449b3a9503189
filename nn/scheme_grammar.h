// Positional schemes as text. Programs, checkpoints and reports write schemes in one grammar:
//
//   schemes  = scheme { "+" scheme }
//   scheme   = name [ "(" [ scheme "," ] option { "," option } ")" ]      a scheme inside is the base of the outer one
//   option   = key "=" value                                               a value may be numbers: "1:1.5:4"
//
// Schemes may be nested at most 8 deep.
//   "rope(base=500000)"    "cope(p_max=16) + rope"    "cdape(kerple, kernel=3)"    "randomised(alibi, length=2048)"
//   "none"
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace whence {

class PositionalScheme;
struct SchemeInfo;
struct SchemeSizes;

// One scheme of a parsed text, with every option that was given.
class SchemeSpec {
 public:
  const SchemeInfo& info() const { return *info_; }
  const SchemeSpec* base() const { return base_.empty() ? nullptr : &base_[0]; }
  const std::map<std::string, std::string>& given() const { return given_; }
  std::string text() const;        // canonical: registered name, base, given options in registered order
  bool shared() const;             // true if one instance serves all layers
  const SchemeSpec& part() const;  // itself, or the scheme inside layers(S)
  bool takes_part(const SchemeSizes& sizes) const;  // true if it runs in the layer of these sizes
  // Throws InputError if an option does not fit the sizes (rope with an odd head size, for example).
  [[nodiscard]] std::unique_ptr<PositionalScheme> make(const SchemeSizes& sizes) const;

 private:
  friend class SchemeParser;
  const SchemeInfo* info_ = nullptr;
  std::vector<SchemeSpec> base_;  // none or one
  std::map<std::string, std::string> given_;
};

inline constexpr int deepest_scheme = 8;

// Throws InputError with the position in the text, what was expected, and the nearest name for an unknown one. Refuses
// the same scheme twice (unless each is in other layers), `none` in a sum, and more than `deepest_scheme` nested
// schemes.
std::vector<SchemeSpec> parse_schemes(const std::string& text);
std::string canonical_text(const std::vector<SchemeSpec>& specs);

// Returns NaN unless the text is a number.
double number_in(const std::string& text);
// Returns each number of "1:1.5:4", NaN for a part that is no number.
std::vector<double> numbers_in(const std::string& text);

}  // namespace whence

// Positional schemes as text. Programs, checkpoints and reports write schemes in one grammar:
//
//   schemes  = scheme { "+" scheme }
//   scheme   = name [ "(" [ scheme "," ] option { "," option } ")" ]      a scheme inside is the base of the outer one
//   option   = key "=" value                                               a value may be numbers: "1:1.5:4"
//
// Schemes stand inside each other at most 8 deep.
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
  bool shared() const;             // one instance for all layers
  const SchemeSpec& part() const;  // itself, or what it holds in some layers
  bool takes_part(const SchemeSizes& sizes) const;  // in the layer of these sizes
  // Throws InputError when an option does not fit the sizes (an odd head size for rope, say).
  [[nodiscard]] std::unique_ptr<PositionalScheme> make(const SchemeSizes& sizes) const;

 private:
  friend class SchemeParser;
  const SchemeInfo* info_ = nullptr;
  std::vector<SchemeSpec> base_;  // none or one
  std::map<std::string, std::string> given_;
};

inline constexpr int deepest_scheme = 8;

// Throws InputError: where in the text, what was expected, and the nearest name where one is unknown. The same scheme
// twice is refused (but in some layers each), and so are `none` in a sum and more than `deepest_scheme` schemes inside each other.
std::vector<SchemeSpec> parse_schemes(const std::string& text);
std::string canonical_text(const std::vector<SchemeSpec>& specs);

// NaN where the text is no number.
double number_in(const std::string& text);
// Of "1:1.5:4" each, NaN where one is no number.
std::vector<double> numbers_in(const std::string& text);

}  // namespace whence

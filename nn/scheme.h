// Positional schemes made from text; nn/scheme_registry.h has the known schemes. Programs, checkpoints and reports write
// schemes in one grammar:
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
#include <type_traits>
#include <vector>

#include "nn/attention/stages.h"
#include "nn/scheme_registry.h"

namespace whence {

// The sizes of the model that a scheme belongs to.
struct SchemeSizes {
  index_t dim = 0, heads = 0;
  index_t length = 0;    // the longest training sequence, in tokens
  index_t layer = 0;     // layer of the attention that owns the scheme; 0 if the model owns it
  index_t kv_heads = 0;  // heads of keys and values, a divisor of heads; 0: the same number
  index_t head_dim() const { return dim / heads; }
  index_t key_heads() const { return kv_heads ? kv_heads : heads; }
  // Throws InputError, prefixed by `what`, unless dim is a multiple of heads, and heads of key_heads().
  void require_whole(const char* what) const;
};

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

// A scheme's options, checked: every registered option has its given or its default value. Reading an option that is
// not registered throws Error.
class SchemeArguments {
 public:
  SchemeArguments(const SchemeSpec& spec, SchemeSizes sizes);
  const SchemeSizes& sizes() const { return sizes_; }
  index_t integer(const std::string& name) const { return static_cast<index_t>(number(name)); }
  double number(const std::string& name) const { return number_in(word(name)); }
  std::vector<double> numbers(const std::string& name) const { return numbers_in(word(name)); }
  const std::string& word(const std::string& name) const;
  bool yes(const std::string& name) const { return word(name) == "yes"; }
  // Returns an integer, or the training length if it is 0. Throws InputError "SCHEME: no WHAT and a model without a
  // training length given; one of them required" if both are 0.
  index_t or_length(const std::string& name, const char* what) const;
  bool given(const std::string& name) const { return spec_.given().contains(name); }  // not left at its default
  // Throws InputError if a given option would have no effect: "scheme 'TEXT': NAME given; it has no effect
  // WITHOUT_WHAT; leave it out".
  void refuse_if_given(const std::string& name, const std::string& without_what) const;
  // Makes the scheme inside the parentheses, for the same sizes, or for runs of another length. REQUIRES: takes_base in
  // the registration.
  [[nodiscard]] std::unique_ptr<PositionalScheme> base() const { return base(sizes_.length); }
  [[nodiscard]] std::unique_ptr<PositionalScheme> base(index_t length) const;
  const SchemeSpec& spec() const { return spec_; }

 private:
  const SchemeSpec& spec_;
  SchemeSizes sizes_;
  std::map<std::string, std::string> values_;
};

// Makes a scheme in a registration; its constructor takes the arguments, or nothing.
template <class Scheme> std::unique_ptr<PositionalScheme> make_scheme(const SchemeArguments& arguments) {
  if constexpr (std::is_constructible_v<Scheme, const SchemeArguments&>)
    return std::make_unique<Scheme>(arguments);
  else
    return std::make_unique<Scheme>();
}

// Throws InputError if the last of `names` occurs among the others: a layer has one scheme of a name.
void require_last_once(const std::vector<std::string>& names, index_t layer);

// The schemes that every layer has for itself, or the schemes that the model has once for all layers. The parameters of
// a single scheme have the list's path ("position.table"); of several, each has its name in it ("position.cope.table").
// The owner registers root() as its child. Throws the errors of SchemeSpec::make, and Error if a scheme that embeds
// tokens is registered for each layer.
class SchemeList final : public Module {
 public:
  enum class Owner { layer, model };
  SchemeList(const std::vector<SchemeSpec>& specs, const SchemeSizes& sizes, Owner owner);
  Module& root() { return schemes_.size() == 1 ? static_cast<Module&>(*schemes_[0]) : *this; }
  std::vector<const PositionalScheme*> all() const;

 private:
  std::vector<std::unique_ptr<PositionalScheme>> schemes_;
};

}  // namespace whence

// Positional schemes made from text: nn/scheme_grammar.h has the grammar, nn/scheme_registry.h the known schemes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "nn/attention/stages.h"
#include "nn/scheme_grammar.h"
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
  // Throws InputError, in the name of `what`, unless dim is a multiple of heads, and heads one of key_heads().
  // Throws InputError, prefixed by `what`, unless dim is a multiple of heads, and heads of key_heads().
  void require_whole(const char* what) const;
};

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

// Positional schemes by name: the registry that each scheme file enters, and the grammar that programs, checkpoints and reports share.
//
//   schemes  = scheme { "+" scheme }
//   scheme   = name [ "(" option { "," option } ")" ]
//   option   = key "=" value
//   "rope(base=500000)"    "cope(p_max=16) + rope"    "none"
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/position.h"

namespace whence {

struct SchemeOption {
  enum class Kind { integer, real, word };
  std::string name;
  Kind kind = Kind::word;
  std::string default_text;          // as the user would write it
  double low = 0, high = 0;          // numbers: both ends allowed
  std::vector<std::string> choices;  // words
  std::string help;                  // one line, with the unit if there is one
};

// The sizes of the model that a scheme is made for.
struct SchemeSizes {
  index_t dim = 0, heads = 0;
  index_t length = 0;  // the longest sequence trained on
  index_t head_dim() const { return dim / heads; }
};

// A scheme's options, checked: every registered option has a value, given or default.
class SchemeArguments {
 public:
  SchemeArguments(SchemeSizes sizes, std::map<std::string, std::string> values) : sizes_(sizes), values_(std::move(values)) {}
  const SchemeSizes& sizes() const { return sizes_; }
  index_t integer(const std::string& name) const;
  double real(const std::string& name) const;
  const std::string& word(const std::string& name) const;

 private:
  SchemeSizes sizes_;
  std::map<std::string, std::string> values_;
};

struct SchemeInfo {
  std::string name;                       // "cope"
  std::vector<std::string> aliases = {};  // accepted, never printed
  std::string title;                      // "Contextual Position Encoding"
  std::string paper;                      // "Golovneva et al. 2024, arXiv:2405.18719"
  std::string equation;                   // one line
  bool per_layer = true;                  // false: one instance, before block 0
  std::vector<SchemeOption> options = {};
  std::function<std::unique_ptr<PositionalScheme>(const SchemeArguments&)> make;
};

// static const RegisterScheme registered{{.name = "rope", ...}};
struct RegisterScheme {
  explicit RegisterScheme(SchemeInfo info);
};
std::vector<SchemeInfo> registered_schemes();  // by name

// One scheme of a parsed text, with every option that was given.
class SchemeSpec {
 public:
  const SchemeInfo& info() const { return *info_; }
  std::string text() const;  // canonical: registered name, given options in registered order
  // Throws InputError when an option does not fit the sizes (an odd head size for rope, say).
  [[nodiscard]] std::unique_ptr<PositionalScheme> make(const SchemeSizes& sizes) const;

 private:
  friend std::vector<SchemeSpec> parse_schemes(const std::string& text);
  const SchemeInfo* info_ = nullptr;
  std::map<std::string, std::string> given_;
};

// Throws InputError naming the place in the text, what was expected, and the nearest name where one is unknown. Refused with a reason: the
// same scheme twice, and `none` in a sum.
std::vector<SchemeSpec> parse_schemes(const std::string& text);
std::string canonical_text(const std::vector<SchemeSpec>& specs);

// The instances that a layer (per_layer) or the model (not per_layer) owns. One scheme's parameters lie directly under the list's path
// ("position.table"); of several, each under its name ("position.cope.table"). The owner registers root() as its child.
class SchemeList final : public Module {
 public:
  SchemeList(const std::vector<SchemeSpec>& specs, const SchemeSizes& sizes, bool per_layer);
  Module& root() { return schemes_.size() == 1 ? static_cast<Module&>(*schemes_[0]) : *this; }
  std::vector<const PositionalScheme*> all() const;

 private:
  std::vector<std::unique_ptr<PositionalScheme>> schemes_;
};

// For --help and reference pages: every scheme with paper, equation and options.
std::string describe_schemes();

}  // namespace whence

// Positional schemes by name. Each scheme's file enters the registry. Programs, checkpoints and reports write schemes
// in one grammar:
//
//   schemes  = scheme { "+" scheme }
//   scheme   = name [ "(" [ scheme "," ] option { "," option } ")" ]      a scheme inside is the base of the outer one
//   option   = key "=" value
//
// Schemes stand inside each other at most 8 deep.
//   "rope(base=500000)"    "cope(p_max=16) + rope"    "cdape(kerple, kernel=3)"    "randomised(alibi, length=2048)"
//   "none"
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/attention/stages.h"
#include "tensor/error.h"

namespace whence {

struct SchemeOption {
  enum class Kind : unsigned char { integer, number, word };
  std::string name;
  Kind kind;
  std::string default_text;          // as the user would write it
  double low, high;                  // of numbers: both ends allowed
  std::vector<std::string> choices;  // of words
  std::string help;                  // one line, with the unit if there is one
};

// How a registration writes its options: option::integer("p_max", 64, {1, 1e6}, "largest position").
namespace option {
struct Range {
  double low, high;  // both allowed
};
[[nodiscard]] SchemeOption integer(std::string name, index_t preset, Range range, std::string help);
[[nodiscard]] SchemeOption number(std::string name, double preset, Range range, std::string help);
// The first choice is the default.
[[nodiscard]] SchemeOption words(std::string name, std::vector<std::string> choices, std::string help);
[[nodiscard]] SchemeOption yes_no(std::string name, std::string help);  // no, unless yes is written
}  // namespace option

// The sizes of the model that a scheme is made for.
struct SchemeSizes {
  index_t dim = 0, heads = 0;
  index_t length = 0;  // the longest sequence trained on
  index_t layer = 0;   // of the attention that owns the scheme; 0 for a scheme that the model owns
  index_t head_dim() const { return dim / heads; }
};

class SchemeSpec;

// A scheme's options, checked: every registered option has a value, given or default.
class SchemeArguments {
 public:
  SchemeArguments(const SchemeSpec& spec, SchemeSizes sizes);
  const SchemeSizes& sizes() const { return sizes_; }
  index_t integer(const std::string& name) const;
  double number(const std::string& name) const;
  const std::string& word(const std::string& name) const;
  bool yes(const std::string& name) const { return word(name) == "yes"; }
  bool given(const std::string& name) const;  // written out, not left at its default
  // Throws InputError when a given option would do nothing:
  // "scheme 'TEXT': NAME given; it has no effect WITHOUT_WHAT; leave it out".
  void refuse_if_given(const std::string& name, const std::string& without_what) const;
  // The scheme inside the parentheses, for the same sizes, or for runs of another length.
  // REQUIRES: made with takes_base.
  [[nodiscard]] std::unique_ptr<PositionalScheme> base() const;
  [[nodiscard]] std::unique_ptr<PositionalScheme> base(index_t length) const;
  const SchemeSpec& spec() const { return spec_; }

 private:
  const SchemeSpec& spec_;
  SchemeSizes sizes_;
  std::map<std::string, std::string> values_;
};

// What a probe shows: for everything that draws it or writes about it.
struct ProbeInfo {
  enum class Scale : unsigned char { unit, sequential, diverging };  // 0 to 1; from 0 up; either sign

  std::string name;  // as it is passed to probe(): "gates"
  std::string axes;  // a letter for each: b batch, h head, i query, j key, t token, d head dim, c channel, n table row,
                     // o one for all
  Scale scale;       // of the value; a gradient has either sign
  std::string caption;    // what it says, one clause
  std::string equation;   // how it is computed, with its number in the paper
  std::string mark = {};  // the option whose value is a line worth drawing: "p_max"
};

struct SchemeInfo {
  std::string name;                       // "cope"
  std::vector<std::string> aliases = {};  // accepted, never printed
  std::string title;                      // "Contextual Position Encoding"
  std::string paper;                      // "Golovneva et al. 2024, arXiv:2405.18719"
  std::string equation;                   // one line
  std::vector<SchemeOption> options = {};
  std::vector<ProbeInfo> probes = {};  // every one that its code passes
  bool takes_base = false;             // made over another scheme, named first in the parentheses
  // Whether one instance serves all layers. By default each layer has its own, and a scheme over
  // another does as that one does.
  std::function<bool(const SchemeArguments&)> shared = {};
  // The conformance tests run the bare name and each single option by themselves. They run these texts too:
  // whatever the author worries about.
  std::vector<std::string> variants = {};
  std::function<std::unique_ptr<PositionalScheme>(const SchemeArguments&)> make;
};

// Schemes by name. Two of one name are an Error that names both places. It waits until somebody reads the registry:
// registration runs before main, where nothing could catch it.
class SchemeRegistry {
 public:
  void add(SchemeInfo info, const Site& at);
  const std::map<std::string, SchemeInfo>& all() const;  // throws the Error

 private:
  std::map<std::string, SchemeInfo> schemes_;
  std::map<std::string, Site> places_;  // of names and aliases
  std::string clash_;
};

// static const RegisterScheme registered{{.name = "rope", ...}};
struct RegisterScheme {
  explicit RegisterScheme(SchemeInfo info, const Site& at = Site::current());
};
std::vector<SchemeInfo> registered_schemes();  // by name

// One scheme of a parsed text, with every option that was given.
class SchemeSpec {
 public:
  const SchemeInfo& info() const { return *info_; }
  const SchemeSpec* base() const { return base_.empty() ? nullptr : &base_[0]; }
  const std::map<std::string, std::string>& given() const { return given_; }
  std::string text() const;  // canonical: registered name, base, given options in registered order
  bool shared() const;       // one instance for all layers
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
// twice is refused, and so are `none` in a sum and more than `deepest_scheme` schemes inside each other.
std::vector<SchemeSpec> parse_schemes(const std::string& text);
std::string canonical_text(const std::vector<SchemeSpec>& specs);

// The schemes that every layer has for itself, or those that the model has once for all layers. A single scheme's
// parameters lie directly under the list's path ("position.table"); of several, each under its name
// ("position.cope.table"). The owner registers root() as its child.
class SchemeList final : public Module {
 public:
  enum class Part { each_layer, shared };
  SchemeList(const std::vector<SchemeSpec>& specs, const SchemeSizes& sizes, Part part);
  Module& root() { return schemes_.size() == 1 ? static_cast<Module&>(*schemes_[0]) : *this; }
  std::vector<const PositionalScheme*> all() const;

 private:
  std::vector<std::unique_ptr<PositionalScheme>> schemes_;
};

// What is known of a probe of these schemes by its path in attention: "position.cope.gates", "position.base.bias".
// Nothing where no scheme names it.
struct FoundProbe {
  const SchemeSpec* scheme;
  const ProbeInfo* probe;
};
std::optional<FoundProbe> find_probe(const std::vector<SchemeSpec>& specs, const std::string& path);

// For --help and reference pages: every scheme, or those that are named, with paper, equation and options.
std::string describe_schemes(const std::vector<std::string>& names = {});

}  // namespace whence

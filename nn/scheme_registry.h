// Positional schemes by name: title, paper, equation, options and probes of each. Each scheme's file adds it to the
// registry; nn/scheme.h makes the schemes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tensor/error.h"
#include "tensor/shape.h"

namespace whence {

class PositionalScheme;
class SchemeArguments;

struct SchemeOption {
  enum class Kind : unsigned char { integer, number, numbers, word };
  std::string name;
  Kind kind;
  std::string default_text;          // in the user's notation
  double low, high;                  // range of a number, or of each of several; inclusive
  std::vector<std::string> choices;  // allowed words
  std::string help;                  // one line, with the unit if there is one

  [[nodiscard]] bool fits(const std::string& value) const;
  [[nodiscard]] std::string allowed() const;  // "a whole number in [1, 64]", "one of no, yes"
};

// Functions for a registration's options: option::integer("p_max", 64, {1, 1e6}, "largest position").
namespace option {
struct Range {
  double low, high;  // inclusive
};
[[nodiscard]] inline SchemeOption integer(std::string name, index_t preset, Range range, std::string help) {
  return {std::move(name), SchemeOption::Kind::integer, to_text(preset), range.low, range.high, {}, std::move(help)};
}
[[nodiscard]] inline SchemeOption number(std::string name, double preset, Range range, std::string help) {
  return {std::move(name), SchemeOption::Kind::number, to_text(preset), range.low, range.high, {}, std::move(help)};
}
// Several numbers separated by colons: "1:1.5:4".
[[nodiscard]] inline SchemeOption numbers(std::string name, double preset, Range range, std::string help) {
  return {std::move(name), SchemeOption::Kind::numbers, to_text(preset), range.low, range.high, {}, std::move(help)};
}
// The first choice is the default.
[[nodiscard]] inline SchemeOption words(std::string name, std::vector<std::string> choices, std::string help) {
  return {std::move(name), SchemeOption::Kind::word, choices.empty() ? "" : choices[0], 0, 0, choices, std::move(help)};
}
// "no" unless "yes" is given
[[nodiscard]] inline SchemeOption yes_no(std::string name, std::string help) {
  return words(std::move(name), {"no", "yes"}, std::move(help));
}
}  // namespace option

// A probe's description, for programs that draw it or write about it.
struct ProbeInfo {
  enum class Scale : unsigned char { unit, sequential, diverging };  // 0 to 1; from 0 up; either sign
  using enum Scale;

  std::string name;  // argument of probe(): "gates"
  std::string axes;  // a letter for each: b batch, h head, i query, j key, t token, d head dim, c channel, n table row,
                     // o one for all
  std::string caption;      // its meaning, one clause
  std::string equation;     // the formula, with its number in the paper
  Scale scale = diverging;  // scale of the value; a gradient has either sign
  std::string mark = {};    // the option whose value is a line to draw: "p_max"
};

struct SchemeInfo {
  // A drawing of one pair: all heads through a network, at this key or at its neighbours too; the score of its rotated
  // dims, or the logit's term, by distance; the logit's term by position.
  enum class Picture : unsigned char { none, heads, taps, turn, distance, positions };
  using enum Picture;

  std::string name;                       // "cope"
  std::vector<std::string> aliases = {};  // accepted, never printed
  std::string title = {};                 // "Contextual Position Encoding"
  std::string paper = {};                 // "Golovneva et al. 2024, arXiv:2405.18719"
  std::string equation = {};              // one line
  std::vector<SchemeOption> options = {};
  // The number that a reader moves to see what the scheme does: a probe, or a parameter with places along its axes
  // ("hidden.weight 3=1"). A probe of numbers from 0 to 1 is moved at one pair, another one in a whole head. Empty: the
  // content score of the pair.
  std::string knob = {};
  Picture picture = none;              // drawn by the page of `whence look`
  std::vector<ProbeInfo> probes = {};  // all probes of its code
  bool takes_base = false;             // made from another scheme, named first in the parentheses
  // True if one instance serves all layers. By default each layer has its own, except that a scheme over a base does as
  // its base.
  std::function<bool(const SchemeArguments&)> shared = {};
  // For `layers(S)`: whether S runs in this layer. Such a wrapper must be outermost; several may be summed; its
  // parameters keep the inner scheme's path.
  std::function<bool(const SchemeArguments&)> takes_part = {};
  // The conformance tests run the bare name, each single option, and these texts: the combinations that the author
  // worries about.
  std::vector<std::string> variants = {};
  std::function<std::unique_ptr<PositionalScheme>(const SchemeArguments&)> make;
};

// Schemes by name. Two of one name cause an Error that names both places; so does an unusable registration: an option
// twice, a default outside its range, no way to make the scheme. The Error is thrown when the registry is first read,
// because registration runs before main, where nothing could catch it.
class SchemeRegistry {
 public:
  void add(SchemeInfo info, const Site& site);
  const std::map<std::string, SchemeInfo>& all() const;  // throws the Error

 private:
  std::map<std::string, SchemeInfo> schemes_;
  std::map<std::string, Site> places_;  // sites of names and aliases
  std::string clash_;                   // the fault of the first faulty registration
};

// static const RegisterScheme registered{{.name = "rope", ...}};
struct RegisterScheme {
  explicit RegisterScheme(SchemeInfo info, const Site& site = Site::current());
};
std::vector<SchemeInfo> registered_schemes();  // by name

// Finds a scheme by its name or an alias. InputError with the nearest name if there is none; `in_text`: the user's
// text.
const SchemeInfo& scheme_named(const std::string& name, const std::string& in_text);

// Throws InputError "scheme 'TEXT': MESSAGE".
[[noreturn]] void refuse_scheme(const std::string& text, const std::string& message);
// Returns "; did you mean 'cope'?", or the known names.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

}  // namespace whence

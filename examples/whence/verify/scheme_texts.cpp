#include "examples/whence/verify/scheme_texts.h"

#include <algorithm>

#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence {
namespace {

// Adds the canonical form of a text once. A text that the grammar refuses is added unchanged, and fails when it is used.
void add(std::vector<std::string>& texts, const std::string& text) {
  std::string canonical = text;
  try {
    canonical = canonical_text(parse_schemes(text));
  } catch (const InputError&) {}
  if (std::find(texts.begin(), texts.end(), canonical) == texts.end()) texts.push_back(canonical);
}

std::vector<std::string> other_values(const SchemeOption& option, index_t length) {
  std::vector<std::string> values;
  for (const std::string& choice : option.choices)
    if (choice != option.default_text) values.push_back(choice);
  if (option.kind == SchemeOption::Kind::word) return values;
  const bool whole = option.kind == SchemeOption::Kind::integer;
  const double preset = std::stod(option.default_text);
  const double wanted = whole ? static_cast<double>(length) : preset == 0 ? 0.5 : 1.25 * preset;
  const double near = std::clamp(wanted, option.low, option.high);
  if (near != preset) values.push_back(whole ? to_text(static_cast<index_t>(near)) : to_text(near));
  return values;
}

// Returns the possible bases inside the parentheses: "" alone, or each scheme that takes no base.
std::vector<std::string> insides(const SchemeInfo& info) {
  if (!info.takes_base) return {""};
  std::vector<std::string> bases;
  for (const SchemeInfo& base : registered_schemes())
    if (!base.takes_base) bases.push_back(base.name);
  return bases;
}

std::string with_inside(const std::string& name, const std::string& base, const std::string& option) {
  const std::string inside = base + (base.empty() || option.empty() ? "" : ", ") + option;
  return inside.empty() ? name : name + "(" + inside + ")";
}

}  // namespace

std::vector<std::string> scheme_texts(index_t length) {
  std::vector<std::string> texts;
  for (const SchemeInfo& info : registered_schemes()) {
    for (const std::string& base : insides(info)) {
      add(texts, with_inside(info.name, base, ""));
      for (const SchemeOption& option : info.options)
        for (const std::string& value : other_values(option, length))
          add(texts, with_inside(info.name, base, option.name + "=" + value));
    }
    for (const std::string& variant : info.variants) add(texts, variant);
  }
  return texts;
}

std::vector<std::string> scheme_sums() {
  std::vector<std::string> names, texts;
  for (const SchemeInfo& info : registered_schemes())
    if (!info.takes_base) names.push_back(info.name);
  for (std::size_t a = 0; a < names.size(); ++a)
    for (std::size_t b = a + 1; b < names.size(); ++b) add(texts, names[a] + " + " + names[b]);
  for (const char* text : {"kerple + interpolated(alibi, factor=4)", "kerple + randomised(alibi, length=64)",
           "dape(interpolated(alibi, factor=4), width=3) + kerple", "absolute + cdape(none)"})
    add(texts, text);  // schemes that count the same pairs' distances differently; rows that depend on a bounded length
  return texts;
}

std::vector<std::string> promised_texts() {
  std::vector<std::string> texts;
  for (const SchemeInfo& info : registered_schemes()) {
    if (!info.takes_base) add(texts, info.name);
    for (const std::string& variant : info.variants) add(texts, variant);
  }
  return texts;
}

}  // namespace whence

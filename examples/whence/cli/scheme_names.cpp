#include "examples/whence/cli/scheme_names.h"

#include "tensor/suggest.h"

namespace whence {

std::vector<std::string> scheme_names() {
  std::vector<std::string> names;
  for (const SchemeInfo& info : registered_schemes()) names.push_back(info.name);
  return names;
}

std::string description(const SchemeInfo& scheme) {
  std::string text = scheme.name + ": " + scheme.title + " (" + scheme.paper + ")\n    " + scheme.equation + '\n';
  for (const SchemeOption& option : scheme.options) {
    const bool is_word = option.kind == SchemeOption::Kind::word;
    text += "    " + option.name + "=" + option.default_text + "  " + option.help;
    text += is_word ? "; one of " + joined(option.choices, std::identity(), " | ")
                    : to_text("; in [", option.low, ", ", option.high, "]");
    text += '\n';
  }
  return text;
}

}  // namespace whence

// Collects the names from the registry.
#include "examples/whence/cli/scheme_names.h"

#include <algorithm>
#include <sstream>

#include "nn/scheme.h"

namespace whence {

std::vector<std::string> scheme_names() {
  std::vector<std::string> names;
  for (const SchemeInfo& info : registered_schemes()) names.push_back(info.name);
  return names;
}

std::string describe_schemes(const std::vector<std::string>& names) {
  std::vector<std::string> wanted;
  for (const std::string& name : names) wanted.push_back(scheme_named(name, name).name);
  std::ostringstream out;
  for (const SchemeInfo& info : registered_schemes()) {
    if (!wanted.empty() && !std::count(wanted.begin(), wanted.end(), info.name)) continue;
    out << info.name << ": " << info.title << " (" << info.paper << ")\n    " << info.equation << '\n';
    for (const SchemeOption& option : info.options) {
      out << "    " << option.name << "=" << option.default_text << "  " << option.help;
      if (option.kind == SchemeOption::Kind::word)
        for (std::size_t k = 0; k < option.choices.size(); ++k) out << (k ? " | " : "; one of ") << option.choices[k];
      else
        out << "; in [" << option.low << ", " << option.high << "]";
      out << '\n';
    }
  }
  return out.str();
}

}  // namespace whence

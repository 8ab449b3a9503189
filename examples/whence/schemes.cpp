// schemes: the positional schemes, or everything about some of them.
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/scheme_names.h"
#include "examples/whence/report/table.h"
#include "nn/scheme.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

void print_all() {
  Table table({"scheme", "what it is", "options"});
  for (const SchemeInfo& info : registered_schemes()) {
    const std::string options = joined(info.options, &SchemeOption::name);
    table.row({info.name + (info.takes_base ? "(SCHEME)" : ""), info.title, options});
  }
  std::cout << table.text() << "whence schemes NAME shows paper, equation and options; schemes add up: cope + rope\n";
}

std::string description(const SchemeInfo& scheme) {
  std::string text = scheme.name + (scheme.title.empty() ? "" : ": " + scheme.title) +
                     (scheme.paper.empty() ? "" : " (" + scheme.paper + ")") +
                     (scheme.equation.empty() ? "" : "\n    " + scheme.equation) + '\n';
  for (const SchemeOption& option : scheme.options) {
    const bool is_word = option.kind == SchemeOption::Kind::word;
    text += "    " + option.name + "=" + option.default_text + "  " + option.help;
    text += is_word ? "; one of " + joined(option.choices, std::identity(), " | ")
                    : to_text("; in [", option.low, ", ", option.high, "]");
    text += '\n';
  }
  return text;
}

int run(CommandLine& line) {
  std::vector<std::string> names;
  line.names("[SCHEME...]", &names, "paper, equation and options of these", scheme_names())
      .example("whence schemes cope rope", "two of them");
  if (line.shows_page()) return 0;
  std::vector<SchemeInfo> wanted;  // all of them before anything is printed: a name may be none
  for (const std::string& name : names) wanted.push_back(scheme_named(name, name));
  for (const SchemeInfo& scheme : wanted) std::cout << description(scheme);
  if (names.empty()) print_all();
  return 0;
}

const RegisterCommand registered{
    {"schemes", Purpose::learn, "the positional schemes, their equations and options", run}};

}  // namespace
}  // namespace whence

// schemes: lists the positional schemes, prints everything about some of them, or says how each is trained on a device.
#include <algorithm>
#include <iostream>
#include <map>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/report/table.h"
#include "examples/whence/verify/scheme_texts.h"
#include "nn/scheme.h"
#include "nn/transformer.h"
#include "tensor/error.h"

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

// Prints the executor that trains each scheme in GPT-2's heads, and why a faster one does not. A form of a scheme has
// its own row if its executor differs.
void print_executors(Device device, const std::vector<SchemeInfo>& wanted) {
  const DType dtype = device.is_gpu() ? DType::bf16 : DType::f32;
  const PlannedModules planned;
  Table table({"scheme", "executor", "why"});
  std::map<std::string, std::string> of_schemes;  // the words for each scheme's first form
  for (const std::string& text : promised_texts()) {
    const std::string name = text.substr(0, text.find('('));
    if (text.find(" + ") != std::string::npos) continue;
    if (!wanted.empty() && std::ranges::find(wanted, name, &SchemeInfo::name) == wanted.end()) continue;
    const Transformer model({.vocabulary = 1, .length = 64, .dim = 768, .layers = 1, .heads = 12, .scheme = text});
    const std::string said = model.attention(0).explain(device, dtype, 1, 64);
    const auto [of_scheme, first] = of_schemes.emplace(name, said);
    if (!first && of_scheme->second == said) continue;
    const std::size_t end = said.find(" (");
    const std::string why = said.substr(end + 2, said.size() - end - 3);
    table.row({text, said.substr(0, end), why.substr(0, why.find("reference while"))});
  }
  std::cout << table.text() << "12 heads of 64 numbers, 64 tokens, " << to_string(dtype) << " on " << to_string(device)
            << '\n';
}

int run(CommandLine& line) {
  std::vector<std::string> names;
  std::string executors;
  line.names("[SCHEME...]", &names, "paper, equation and options of these")
      .choice("executors", &executors, {"cpu", "cuda"},
          {"show the executor that trains each scheme there, and why; nothing is computed"})
      .example("whence schemes cope rope", "two of them")
      .example("whence schemes --executors cuda", "tiles, strips of rows, or composed ops");
  if (line.shows_page()) return 0;
  std::vector<SchemeInfo> wanted;  // resolves all names before it prints: one may be unknown
  for (const std::string& name : names) wanted.push_back(scheme_named(name, name));
  for (const SchemeInfo& scheme : wanted) std::cout << description(scheme);
  if (!executors.empty()) print_executors(executors == "cuda" ? Device::cuda(0) : Device::cpu(), wanted);
  if (names.empty() && executors.empty()) print_all();
  return 0;
}

const RegisterCommand registered{
    {"schemes", Purpose::learn, "the positional schemes, their equations and options", run}};

}  // namespace
}  // namespace whence

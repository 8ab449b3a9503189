// What there is to reproduce.
#include <algorithm>
#include <iostream>

#include "examples/whence/cli/text.h"
#include "examples/whence/papers/record.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence::papers {
namespace {

std::string recorded_text(const PaperTable& table, const std::vector<Record>& records) {
  std::string text;
  for (const Record& record : records) {
    if (record.table != table.name) continue;
    const std::vector<Judged> all = judged_of(record);
    const auto hold =
        std::ranges::count_if(all, [](const Judged& each) { return each.decision.verdict == Verdict::holds; });
    text += to_text("; recorded ", record.preset, " ", one_line(record.date.substr(0, 10)),
        all.empty() ? "" : to_text(": ", hold, " of ", all.size(), " hold"));
  }
  return text;
}

std::string cost_of(const PaperTable& table, const std::vector<Record>& records) {
  std::string text;
  for (const Preset& preset : table.presets) {
    std::string cost;
    for (const Record& record : records)
      if (record.table == table.name && (cost.empty() || record.preset == preset.name))
        cost = cost_text(record, preset.name);
    text += to_text(text.empty() ? ": " : ", ", preset.name, " ", cost.empty() ? "of unknown cost" : cost);
  }
  return text;
}

std::string how(const PaperTable& table) {
  if (table.kind == Kind::not_ours) return "lacks: " + table.note;
  if (table.kind == Kind::compared) return "trained, compared";
  return table.presets.empty() ? "commands" : "trained, then commands";
}

// Lines of less than 120 columns, each but the first after `indent` blanks.
std::string indented(const std::string& text, std::size_t indent) {
  return joined(wrapped(text, 119 - indent), std::identity(), '\n' + std::string(indent, ' ')) + '\n';
}

}  // namespace

void print_list(const std::vector<Record>& records) {
  constexpr std::size_t indent = 28;
  std::cout << "Costs are on two cores.\n";
  for (const PaperTable& table : all_papers().tables) {
    std::string name = table.name;
    name.resize(std::max(indent, name.size() + 1), ' ');
    std::cout << name << indented(to_text(table.what, " (", table.place, ")"), indent) << std::string(indent, ' ')
              << indented(how(table) + cost_of(table, records) + recorded_text(table, records), indent);
  }
}

}  // namespace whence::papers

#include "examples/whence/tasks/paper_figures.h"

#include <algorithm>
#include <cmath>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/papers/paper_table.h"
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence::tasks {
namespace {

// "cope(p_max=8)", "dape(alibi)", "cope + rope": without what only moves positions, and without options unless `sized`.
std::string family(const SchemeSpec& spec, bool sized) {
  const SchemeSpec* base = spec.base();
  if (!base) return sized ? spec.text() : spec.info().name;
  if (spec.info().name == "dape" || spec.info().name == "cdape")
    return sized ? spec.text() : to_text(spec.info().name, "(", family(*base, false), ")");
  return family(*base, sized);
}

std::string family(const std::string& schemes, bool sized) {
  std::string text;
  for (const SchemeSpec& spec : parse_schemes(schemes)) text += (text.empty() ? "" : " + ") + family(spec, sized);
  return text;
}

}  // namespace

std::vector<PaperFigure> printed_in(const std::string& table, const std::string& column) {
  const papers::PaperTable& paper = papers::table_named(table);
  std::vector<PaperFigure> figures;
  const auto is_it = [&](const papers::Column& each) { return each.name == column || each.task == column; };
  const auto found = std::ranges::find_if(paper.columns, is_it);
  if (found == paper.columns.end()) return figures;
  for (const papers::Method& method : paper.methods)
    for (const papers::Printed& printed : paper.printed)
      if (printed.method == method.name && printed.column == found->name)
        figures.push_back({family(method.scheme, false), printed.mean, printed.deviation});
  return figures;
}

const PaperFigure* figure_of(
    const std::vector<PaperFigure>& figures, const std::string& scheme, const std::string& own) {
  const std::string wanted = family(scheme, false), sized = family(scheme, true);
  for (const PaperFigure& figure : figures)
    if (figure.scheme == wanted && (sized == wanted || sized == family(own, true))) return &figure;
  return nullptr;
}

std::string figure_text(const PaperFigure* figure) {
  if (!figure) return "-";
  return std::isnan(figure->deviation) ? exact(figure->mean)
                                       : to_text(exact(figure->mean), " (", exact(figure->deviation), ")");
}

}  // namespace whence::tasks

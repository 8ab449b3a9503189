// Perplexities by length as tables.
#include <cmath>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/language/length_evaluation.h"
#include "examples/whence/report/table.h"

namespace whence::language {
namespace {

std::string number(double value, int digits) { return std::isfinite(value) ? fixed(value, digits) : "-"; }

}  // namespace

Table length_table(const std::vector<LengthScore>& scores) {
  Table table({"length", "x training", "windows", "last tokens", "perplexity", "standard error", "note"});
  for (const LengthScore& score : scores) {
    const auto count = [&](index_t n) { return score.refused.empty() ? std::to_string(n) : "-"; };
    table.row({std::to_string(score.length), std::to_string(score.length / scores.front().length), count(score.windows),
        count(score.last), number(score.perplexity, 3), number(score.standard_error, 3), score.refused});
  }
  return table;
}

Table delta_table(const std::vector<LengthScore>& scores) {
  Table table({"length", "last tokens", "full", "truncated", "Delta-P"});
  for (const LengthScore& score : scores)
    for (const DeltaP& delta : score.deltas)
      table.row({std::to_string(score.length), std::to_string(delta.last), number(delta.full, 3),
          number(delta.truncated, 3), number(delta.value(), 3)});
  return table;
}

}  // namespace whence::language

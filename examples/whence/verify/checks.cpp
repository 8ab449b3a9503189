#include "examples/whence/verify/checks.h"

#include "examples/whence/verify/conformance.h"
#include "examples/whence/verify/gradient_check.h"
#include "tensor/error.h"

namespace whence {

std::string CheckReport::text() const {
  std::string text = to_text(name, ": ", checks, " checks: ", ok() ? "ok" : to_text(problems.size(), " FAILED"), '\n');
  for (const std::string& problem : problems) text += "  " + problem + '\n';
  return text;
}

CheckReport check_op(const std::string& name) {
  const Checkable found = find_checkable(name);
  if (!found.op) throw InputError("'", name, "' given, a scheme; an op required; check_scheme checks it");
  return check_op(*found.op);
}

CheckReport check_scheme(const std::string& text) {
  const ConformanceRow row = conform(text, 1);
  if (!row.refusal.empty()) throw InputError(row.refusal);
  CheckReport report{row.scheme};
  report.checks = static_cast<int>(row.cells.size()) - row.count(ConformanceCell::Mark::not_applicable);
  for (std::size_t k = 0; k < row.cells.size(); ++k)
    if (row.cells[k].mark == ConformanceCell::Mark::failed)
      report.problems.push_back(to_text(conformance_checks()[k].name, ": ", row.cells[k].note));
  return report;
}

}  // namespace whence

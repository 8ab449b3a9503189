#include "examples/whence/look/explained.h"

#include "examples/whence/look/named_number.h"
#include "examples/whence/report/encode.h"
#include "tensor/error.h"

namespace whence::look {
namespace {

std::string number_at(const std::string& name, const Shape& at, double value) {
  return to_text(name, at.rank() ? to_string(at) : "", " = ", report::number(value, 9));
}

void write_operands(const Contribution& operand, int depth, std::string& out) {
  const std::string indent(static_cast<std::size_t>(2 * depth), ' ');
  for (const Contribution& from : operand.from) {
    const std::string name = from.name.empty() ? from.op.empty() ? "constant" : from.op : from.name;
    out += to_text(indent, "from ", number_at(name, from.at, from.value));
    if (from.derivative != 1) out += to_text("  times ", report::number(from.derivative, 9));
    if (!from.line.empty()) out += to_text("    ", from.line);
    out += '\n';
    write_operands(from, depth + 1, out);
  }
  if (operand.more > 0)
    out += to_text(indent, "and ", operand.more, " more, together ", report::number(operand.rest, 9), '\n');
}

}  // namespace

std::string explained(const Inspection& inspection, const std::string& what) {
  const NamedNumber number = number_named(inspection, what);
  const Quantity& quantity = *number.quantity;
  const Shape at(number.at);
  std::string out;
  const Reason& reason = inspection.reasons()[quantity.reasons[number.element]];
  if (reason.stop == Stop::constant)
    return to_text(number_at(quantity.path, at, quantity.value.to_vector()[number.element]),
        "    a constant: ", meaning_of(Stop::constant), '\n');
  if (!number.gradient) {
    const Contribution operand = inspection.explain_value(quantity.path, at);
    out = to_text(number_at(quantity.path, at, operand.value), "    ", operand.op, "  ", operand.line, "\n  ",
        quantity.probe->caption, ":  ", quantity.probe->equation, '\n');
    write_operands(operand, 1, out);
    return out;
  }
  const ExplainedGradient found = inspection.explain_gradient(quantity.path, at);
  out = to_text(number_at("dLoss/d " + quantity.path, at, found.gradient), '\n');
  for (const GradientTerm& term : found.terms) {
    out += to_text("  ", report::number(term.gradient * term.derivative, 9), " = dLoss/d ",
        term.name.empty() ? "loss" : term.name, term.at.rank() ? to_string(term.at) : "", " ",
        report::number(term.gradient, 9), "  times ", report::number(term.derivative, 9), '\n');
  }
  if (found.more > 0) out += to_text("  and ", found.more, " more, together ", report::number(found.rest, 9), '\n');
  out += to_text("  sum ", report::number(found.sum, 9), '\n');
  if (reason.stop != Stop::nothing) {
    out += to_text("  why: ", to_string(reason.stop), ": ", meaning_of(reason.stop));
    if (!reason.op.empty()) out += to_text(" (", reason.op, ", ", reason.line, ")");
    out += '\n';
  }
  return out;
}

}  // namespace whence::look

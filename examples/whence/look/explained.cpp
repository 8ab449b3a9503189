#include "examples/whence/look/explained.h"

#include "examples/whence/cli/numbers.h"
#include "examples/whence/look/place.h"
#include "tensor/error.h"

namespace whence::look {
namespace {

// ---- The number as text

std::string number_at(const std::string& name, const Shape& at, double value) {
  return to_text(name, at.rank() ? to_string(at) : "", " = ", digits(value, 9));
}

std::string and_more(const std::string& indent, std::size_t more, double rest) {
  return more > 0 ? to_text(indent, "and ", more, " more, together ", digits(rest, 9), '\n') : "";
}

void write_operands(const Contribution& operand, int depth, std::string& out) {
  const std::string indent(static_cast<std::size_t>(2 * depth), ' ');
  for (const Contribution& from : operand.from) {
    const std::string name = from.name.empty() ? from.op.empty() ? "constant" : from.op : from.name;
    out += to_text(indent, "from ", number_at(name, from.at, from.value));
    if (from.derivative != 1) out += to_text("  times ", digits(from.derivative, 9));
    out += to_text(from.line.empty() ? "" : "    ", from.line, '\n');
    write_operands(from, depth + 1, out);
  }
  out += and_more(indent, operand.more, operand.rest);
}

std::string value_text(const Inspection& inspection, const Quantity& quantity, const Shape& at) {
  const Contribution operand = inspection.explain_value(quantity.path, at);
  std::string out = to_text(number_at(quantity.path, at, operand.value), "    ", operand.op, "  ", operand.line, "\n  ",
      quantity.probe->caption, ":  ", quantity.probe->equation, '\n');
  write_operands(operand, 1, out);
  return out;
}

std::string gradient_text(const Inspection& inspection, const Quantity& quantity, const Shape& at) {
  const ExplainedGradient found = inspection.explain_gradient(quantity.path, at);
  std::string out = to_text(number_at("dLoss/d " + quantity.path, at, found.gradient), '\n');
  for (const GradientTerm& term : found.terms)
    out += to_text("  ", digits(term.gradient * term.derivative, 9), " = dLoss/d ",
        term.name.empty() ? "loss" : term.name, term.at.rank() ? to_string(term.at) : "", " ", digits(term.gradient, 9),
        "  times ", digits(term.derivative, 9), '\n');
  return out + and_more("  ", found.more, found.rest) + to_text("  sum ", digits(found.sum, 9), '\n');
}

}  // namespace

std::string explained(const Inspection& inspection, const std::string& what) {
  const NamedPlace number = place_named(inspection, what, "--explain");
  const Quantity& quantity = *number.quantity;
  if (quantity.is_parameter)
    throw InputError("--explain: ", quantity.path, " given; a quantity of the pass required, not a parameter");
  const Shape at = number.single("--explain");
  const std::size_t element = Axes(quantity).element(at);
  const Cause& cause = inspection.causes()[quantity.causes[element]];
  if (cause.stop == Stop::constant)
    return to_text(number_at(quantity.path, at, quantity.value.to_vector()[element]),
        "    a constant: ", meaning_of(Stop::constant), '\n');
  if (!number.gradient) return value_text(inspection, quantity, at);
  std::string out = gradient_text(inspection, quantity, at);
  if (cause.stop != Stop::nothing)
    out += to_text("  why: ", to_string(cause.stop), ": ", meaning_of(cause.stop),
        cause.op.empty() ? "" : to_text(" (", cause.op, ", ", cause.line, ")"), '\n');
  return out;
}

}  // namespace whence::look

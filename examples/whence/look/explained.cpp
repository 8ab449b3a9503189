#include "examples/whence/look/explained.h"

#include <map>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/words.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence::look {
namespace {

// ---- Which number is meant

struct NamedNumber {
  const Quantity* quantity;
  bool gradient;
  Shape at;
};

const Quantity& quantity_of(const Inspection& inspection, index_t layer, const std::string& name) {
  std::vector<std::string> known;
  for (const Quantity& quantity : inspection.quantities()) {
    if (!quantity.probe || quantity.layer != layer) continue;
    if (quantity.probe->name == name || quantity.name == name) return quantity;
    known.push_back(quantity.name);
  }
  throw InputError("--explain: '", name, "' in layer ", layer, " given; one of ", joined(known), " required");
}

NamedNumber number_named(const Inspection& inspection, const std::string& text) {
  std::string name;
  std::map<std::string, Word> places;
  for (const Word& word : words_of(text, "--explain")) {
    if (!word.name.empty() && !places.emplace(word.name, word).second)
      throw InputError("--explain: ", word.name, " given twice; once required");
    if (!word.name.empty()) continue;
    if (!name.empty()) throw InputError("--explain: '", name, "' and '", word.value, "' given; one name required");
    name = word.value;
  }
  const bool gradient = name.starts_with("dLoss/d");
  if (gradient) name = name.substr(7);
  if (name.empty()) name = "logits";
  const auto take = [&](const std::string& word, index_t extent) -> std::optional<index_t> {
    const auto place = places.extract(word);
    return place ? std::optional(place.mapped().whole("--explain", 0, extent - 1)) : std::nullopt;
  };
  const index_t layer = take("layer", inspection.subject().model->options().layers).value_or(0);
  NamedNumber number{&quantity_of(inspection, layer, name), gradient, {}};
  const Axes axes(*number.quantity);
  const std::string of_axes = to_text(name, " has axes ", number.quantity->probe->axes);
  for (std::size_t axis = 0; axis < axes.letters.size(); ++axis) {  // the batch is one
    const std::string word = axes.letters[axis] == 'h' ? "head" : std::string(1, axes.letters[axis]);
    const index_t extent = axes.shape[static_cast<int>(axis)];
    const std::optional<index_t> place = take(word, extent);
    if (!place && extent > 1)
      throw InputError("--explain: no ", word, " given; ", of_axes, "; ", word, "=0 to ", extent - 1, " required");
    number.at.push_back(place.value_or(0));
  }
  if (!places.empty()) throw InputError("--explain: ", places.begin()->first, " given; ", of_axes, " alone");
  return number;
}

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
  const NamedNumber number = number_named(inspection, what);
  const Quantity& quantity = *number.quantity;
  const std::size_t element = Axes(quantity).element(number.at);
  const Reason& reason = inspection.reasons()[quantity.reasons[element]];
  if (reason.stop == Stop::constant)
    return to_text(number_at(quantity.path, number.at, quantity.value.to_vector()[element]),
        "    a constant: ", meaning_of(Stop::constant), '\n');
  if (!number.gradient) return value_text(inspection, quantity, number.at);
  std::string out = gradient_text(inspection, quantity, number.at);
  if (reason.stop != Stop::nothing)
    out += to_text("  why: ", to_string(reason.stop), ": ", meaning_of(reason.stop),
        reason.op.empty() ? "" : to_text(" (", reason.op, ", ", reason.line, ")"), '\n');
  return out;
}

}  // namespace whence::look

#include "examples/whence/look/place.h"

#include <map>

#include "examples/whence/cli/numbers.h"
#include "tensor/error.h"

namespace whence::look {
namespace {

const Quantity& quantity_named(const std::vector<Quantity>& quantities, const std::vector<Quantity>& parameters,
    index_t layer, const std::string& name, const std::string& option) {
  std::vector<std::string> known;
  for (const std::vector<Quantity>* all : {&quantities, &parameters}) {
    for (const Quantity& quantity : *all) {
      if (quantity.path == name) return quantity;
      if (!quantity.probe || quantity.layer != layer) continue;
      if (quantity.probe->name == name || quantity.name == name) return quantity;
      known.push_back(quantity.name);
    }
  }
  throw InputError(option, ": '", name, "' in layer ", layer, " given; one of ", joined(known),
      parameters.empty() ? "" : ", or a parameter,", " required");
}

// Reads "4" or "3..9", places within an axis.
std::pair<index_t, index_t> range_of(const Word& word, index_t extent, const std::string& option) {
  const std::size_t dots = word.value.find("..");
  const auto first = parse_number<index_t>(word.value.substr(0, dots));
  const auto last = dots == std::string::npos ? first : parse_number<index_t>(word.value.substr(dots + 2));
  if (!first || !last || *first < 0 || *first > *last || *last >= extent)
    throw InputError(
        option, ": ", word.name, "=", word.value, " given; 0 to ", extent - 1, " required, or FIRST..LAST of these");
  return {*first, *last};
}

std::string word_of(const Axes& axes, std::size_t axis) {
  if (axis >= axes.letters.size()) return std::to_string(axis);
  return axes.letters[axis] == 'h' ? "head" : std::string(1, axes.letters[axis]);
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

Shape NamedPlace::single(const std::string& option) const {
  const Axes axes(*quantity);
  Shape at;
  for (std::size_t axis = 0; axis < ranges.size(); ++axis) {
    const auto [first, last] = ranges[axis];
    if (first != last)
      throw InputError(option, ": no ", word_of(axes, axis), " given, or several; one of 0 to ",
          axes.shape[static_cast<int>(axis)] - 1, " required, as ", quantity->name, " has it");
    at.push_back(first);
  }
  return at;
}

Shape NamedPlace::extents() const {
  Shape all;
  for (const auto& [first, last] : ranges) all.push_back(last - first + 1);
  return all;
}

NamedPlace place_named(const Inspection& inspection, const std::string& text, const std::string& option) {
  return place_named(
      inspection.quantities(), inspection.parameters(), inspection.subject().model->options().layers, text, option);
}

NamedPlace place_named(const std::vector<Quantity>& quantities, const std::vector<Quantity>& parameters, index_t layers,
    const std::string& text, const std::string& option) {
  std::string name;
  std::map<std::string, Word> places;
  for (const Word& word : words_of(text)) {
    if (!word.name.empty() && !places.emplace(word.name, word).second)
      throw InputError(option, ": ", word.name, " given twice; once required");
    if (!word.name.empty()) continue;
    if (!name.empty()) throw InputError(option, ": '", name, "' and '", word.value, "' given; one name required");
    name = word.value;
  }
  const bool gradient = name.starts_with("dLoss/d");
  if (gradient) name = name.substr(7);
  if (name.empty()) name = "logits";
  const auto layer = places.extract("layer");
  const index_t chosen = layer ? layer.mapped().whole(option, 0, layers - 1) : 0;
  NamedPlace place{&quantity_named(quantities, parameters, chosen, name, option), gradient, {}};
  const Axes axes(*place.quantity);
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(axes.shape.rank()); ++axis) {
    const index_t extent = axes.shape[static_cast<int>(axis)];
    const auto given = places.extract(word_of(axes, axis));
    place.ranges.push_back(
        given ? range_of(given.mapped(), extent, option) : std::pair<index_t, index_t>(0, extent - 1));
  }
  if (!places.empty())
    throw InputError(option, ": ", places.begin()->first, " given; ", name, " is ", axes.shape,
        place.quantity->probe ? to_text(" with axes ", place.quantity->probe->axes) : "", "; one of these required");
  return place;
}

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

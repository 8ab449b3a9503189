// One number worked out, as lines of text and as JSON.
#include <nlohmann/json.hpp>

#include "examples/whence/look/wanted.h"
#include "examples/whence/look/written.h"
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

const Reason& reason_at(const Inspection& inspection, const Wanted& wanted) {
  return inspection.reasons()[wanted.quantity->reasons[element_at(wanted.at, wanted.quantity->value.shape())]];
}

double value_at(const Wanted& wanted) {
  return wanted.quantity->value.to_vector()[element_at(wanted.at, wanted.quantity->value.shape())];
}

using Json = nlohmann::ordered_json;

Json json_of_place(const std::string& name, const Shape& at) {
  Json place = Json::array();
  for (int axis = 0; axis < at.rank(); ++axis) place.push_back(at[axis]);
  return {{"name", name}, {"at", place}};
}

Json json_of_number(const Contribution& number) {
  Json json = json_of_place(number.name, number.at);
  json.update({{"value", number.value}, {"derivative", number.derivative}});
  if (!number.op.empty()) json.update({{"op", number.op}, {"line", number.line}});
  if (number.from.empty()) return json;
  json["from"] = Json::array();
  for (const Contribution& from : number.from) json["from"].push_back(json_of_number(from));
  if (number.more > 0) json.update({{"more", number.more}, {"rest", number.rest}});
  return json;
}

}  // namespace

std::string explained_json(const Inspection& inspection, const std::string& what) {
  const Wanted wanted = wanted_of(inspection, what, "--explain");
  const Quantity& quantity = *wanted.quantity;
  const Reason& reason = reason_at(inspection, wanted);
  Json json{{"quantity", quantity.path}, {"equation", quantity.probe->equation}, {"caption", quantity.probe->caption}};
  if (reason.stop != Stop::nothing)
    json["why zero"] = {{"kind", to_string(reason.stop)}, {"meaning", meaning_of(reason.stop)}, {"op", reason.op},
        {"line", reason.line}};
  if (reason.stop == Stop::constant) {
    json.update(json_of_place(quantity.path, wanted.at));
    json["value"] = value_at(wanted);
  } else if (!wanted.gradient) {
    json.update(json_of_number(inspection.explain_value(quantity.path, wanted.at)));
  } else {
    const ExplainedGradient found = inspection.explain_gradient(quantity.path, wanted.at);
    json.update(json_of_place("dLoss/d " + quantity.path, wanted.at));
    json.update({{"gradient", found.gradient}, {"sum", found.sum}, {"terms", Json::array()}});
    for (const GradientTerm& term : found.terms) {
      json["terms"].push_back(json_of_place(term.name.empty() ? "loss" : term.name, term.at));
      json["terms"].back().update({{"gradient", term.gradient}, {"derivative", term.derivative}});
    }
    if (found.more > 0) json.update({{"more", found.more}, {"rest", found.rest}});
  }
  return json.dump(2, ' ', true, Json::error_handler_t::replace);
}

std::string explained(const Inspection& inspection, const std::string& what) {
  const Wanted wanted = wanted_of(inspection, what, "--explain");
  const Quantity& quantity = *wanted.quantity;
  const Shape& at = wanted.at;
  std::string out;
  const Reason& reason = reason_at(inspection, wanted);
  if (reason.stop == Stop::constant)
    return to_text(
        number_at(quantity.path, at, value_at(wanted)), "    a constant: ", meaning_of(Stop::constant), '\n');
  if (!wanted.gradient) {
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

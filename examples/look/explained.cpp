// One number worked out, as lines of text and as JSON.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "examples/app/text.h"
#include "examples/look/written.h"
#include "examples/report/encode.h"
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

// "layer=0 head=3 i=41 j=17", of the logits; "gates ..."; "dLoss/dgates ..."
struct Wanted {
  std::string name = "logits";
  bool gradient = false;
  std::vector<std::pair<std::string, index_t>> at;
};

Wanted wanted_of(const std::string& what) {
  Wanted wanted;
  std::istringstream words(what);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) {
      wanted.gradient = word.starts_with("dLoss/d");
      wanted.name = wanted.gradient ? word.substr(7) : word;
      continue;
    }
    const auto number = parse_number<std::int64_t>(word.substr(equals + 1));
    if (!number) throw InputError("--explain: '", word, "' given; a name and a whole number required, such as head=3");
    const std::string name = word.substr(0, equals);
    if (std::ranges::find(wanted.at, name, &std::pair<std::string, index_t>::first) != wanted.at.end())
      throw InputError("--explain: ", name, " given twice; once required");
    wanted.at.emplace_back(name, *number);
  }
  return wanted;
}

const Quantity& quantity_of(const Inspection& inspection, const Wanted& wanted, index_t layer) {
  std::string known;
  for (const Quantity& quantity : inspection.quantities()) {
    if (!quantity.probe || quantity.layer != layer) continue;
    if (quantity.probe->name == wanted.name || quantity.name == wanted.name) return quantity;
    known += (known.empty() ? "" : ", ") + quantity.name;
  }
  throw InputError("--explain: '", wanted.name, "' in layer ", layer, " given; one of ", known, " required");
}

// The position in axes such as "b h i j" that `wanted` names; the batch is one.
Shape position_in(const Quantity& quantity, const Wanted& wanted) {
  std::vector<index_t> at;
  std::vector<std::string> used{"layer"};
  for (std::size_t axis = 0; axis < quantity.probe->axes.size(); axis += 2) {
    const char letter = quantity.probe->axes[axis];
    const std::string name = letter == 'h' ? "head" : std::string(1, letter);
    const index_t extent = quantity.value.size(static_cast<int>(axis / 2));
    const auto given = std::ranges::find(wanted.at, name, &std::pair<std::string, index_t>::first);
    if (given == wanted.at.end() && extent > 1)
      throw InputError("--explain: no ", name, " given; ", wanted.name, " has axes ", quantity.probe->axes, "; ", name,
          "=0 to ", extent - 1, " required");
    const index_t position = given == wanted.at.end() ? 0 : given->second;
    if (position < 0 || position >= extent)
      throw InputError("--explain: ", name, "=", position, " given; 0 to ", extent - 1, " required");
    at.push_back(position), used.push_back(name);
  }
  for (const auto& [name, position] : wanted.at)
    if (std::ranges::find(used, name) == used.end())
      throw InputError("--explain: ", name, " given; ", wanted.name, " has axes ", quantity.probe->axes, " alone");
  return Shape(at);
}

// Which element, row by row, stands at a position.
index_t element_at(const Shape& at, const Shape& shape) {
  index_t element = 0;
  for (int axis = 0; axis < at.rank(); ++axis) element = element * shape[axis] + at[axis];
  return element;
}

// A number that `what` names.
struct Located {
  const Quantity& quantity;
  Shape at;
  bool gradient;
};

Located located(const Inspection& inspection, const std::string& what) {
  const Wanted wanted = wanted_of(what);
  index_t layer = 0;
  for (const auto& [name, position] : wanted.at)
    if (name == "layer") layer = position;
  const index_t layers = inspection.subject().model->options().layers;
  if (layer < 0 || layer >= layers)
    throw InputError("--explain: layer=", layer, " given; 0 to ", layers - 1, " required");
  const Quantity& quantity = quantity_of(inspection, wanted, layer);
  return {quantity, position_in(quantity, wanted), wanted.gradient};
}

const Reason& reason_at(const Inspection& inspection, const Quantity& quantity, const Shape& at) {
  return inspection.reasons()[quantity.reasons[static_cast<std::size_t>(element_at(at, quantity.value.shape()))]];
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
  const auto [quantity, at, gradient] = located(inspection, what);
  const Reason& reason = reason_at(inspection, quantity, at);
  Json json{{"quantity", quantity.path}, {"equation", quantity.probe->equation}, {"caption", quantity.probe->caption}};
  if (reason.stop != Stop::nothing)
    json["why zero"] = {{"kind", to_string(reason.stop)}, {"meaning", meaning_of(reason.stop)}, {"op", reason.op},
        {"line", reason.line}};
  if (reason.stop == Stop::constant) {
    json.update(json_of_place(quantity.path, at));
    json["value"] = quantity.value.to_vector()[static_cast<std::size_t>(element_at(at, quantity.value.shape()))];
  } else if (!gradient) {
    json.update(json_of_number(inspection.explain_value(quantity.path, at)));
  } else {
    const ExplainedGradient found = inspection.explain_gradient(quantity.path, at);
    json.update(json_of_place("dLoss/d " + quantity.path, at));
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
  const auto [quantity, at, gradient] = located(inspection, what);
  std::string out;
  if (reason_at(inspection, quantity, at).stop == Stop::constant) {
    const index_t place = element_at(at, quantity.value.shape());
    return to_text(number_at(quantity.path, at, quantity.value.to_vector()[static_cast<std::size_t>(place)]),
        "    a constant: ", meaning_of(Stop::constant), '\n');
  }
  if (!gradient) {
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
  const Reason& reason = reason_at(inspection, quantity, at);
  if (reason.stop != Stop::nothing) {
    out += to_text("  why: ", to_string(reason.stop), ": ", meaning_of(reason.stop));
    if (!reason.op.empty()) out += to_text(" (", reason.op, ", ", reason.line, ")");
    out += '\n';
  }
  return out;
}

}  // namespace whence::look

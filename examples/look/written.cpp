#include "examples/look/written.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "examples/app/text.h"
#include "examples/report/encode.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

using Json = nlohmann::ordered_json;

Json base64_of(const Tensor& x) {
  if (!x.defined()) return nullptr;
  const Tensor flat =
      raw::contiguous(x.dtype() == DType::f64 || x.dtype() == DType::f32 ? x : raw::cast(x, DType::f32));
  return report::base64({reinterpret_cast<const std::uint8_t*>(flat.bytes()),
      static_cast<std::size_t>(flat.numel()) * size_of(flat.dtype())});
}

int bits_of(const Tensor& x) { return x.dtype() == DType::f64 ? 64 : 32; }

Json shape_of(const Tensor& x) {
  Json shape = Json::array();
  for (int axis = 0; axis < x.rank(); ++axis) shape.push_back(x.size(axis));
  return shape;
}

// A batch of one is left out, on the page and in its axes.
Tensor without_batch(const Tensor& x, const std::string& axes) {
  return x.defined() && axes.starts_with("b ") && x.size(0) == 1 ? raw::select(x, 0, 0) : x;
}
std::string axes_of(const ProbeInfo& probe) { return probe.axes.starts_with("b ") ? probe.axes.substr(2) : probe.axes; }

const char* scale_name(ProbeInfo::Scale scale) {
  static constexpr const char* names[] = {"unit", "sequential", "diverging"};
  return names[static_cast<int>(scale)];
}

Json numbers_of(const Quantity& quantity, const std::string& axes) {
  const Tensor value = without_batch(quantity.value, axes);
  Json entry{{"layer", quantity.layer < 0 ? Json(nullptr) : Json(quantity.layer)}, {"shape", shape_of(value)},
      {"bits", bits_of(value)}, {"value", base64_of(value)},
      {"gradient", base64_of(without_batch(quantity.gradient, axes))}, {"reasons", report::base64(quantity.reasons)}};
  return entry;
}

// The line worth drawing on a scale of the value.
Json marks_of(const Inspection& inspection, const Quantity& quantity) {
  Json marks = Json::array();
  if (quantity.probe->mark.empty()) return marks;
  const std::vector<SchemeSpec> specs = parse_schemes(quantity.scheme);
  const TransformerOptions& model = inspection.subject().model->options();
  const SchemeArguments arguments(specs[0], {model.dim, model.heads, model.length});
  marks.push_back({{"value", arguments.number(quantity.probe->mark)}, {"text", quantity.probe->mark}});
  return marks;
}

// What nn/README.md has more about.
std::string section_of(const Quantity& quantity) {
  return quantity.scheme.empty() ? "attention" : parse_schemes(quantity.scheme)[0].info().name;
}

// Those of the schemes first: they are what one came to see.
std::vector<const Quantity*> shown(const Inspection& inspection) {
  std::vector<const Quantity*> found;
  for (const Quantity& quantity : inspection.quantities())
    if (quantity.probe && quantity.layer >= 0) found.push_back(&quantity);
  std::ranges::stable_partition(found, [](const Quantity* quantity) { return !quantity->scheme.empty(); });
  return found;
}

// "gates"; "alibi.bias" where several schemes have a quantity of that name.
std::string short_name(const Quantity& quantity, const std::vector<const Quantity*>& all) {
  for (const Quantity* other : all)
    if (other->probe->name == quantity.probe->name && other->name != quantity.name)
      return quantity.name.substr(quantity.name.find('.') + 1);
  return quantity.probe->name;
}

Json quantities_of(const Inspection& inspection) {
  Json all = Json::array();
  const std::vector<const Quantity*> every = shown(inspection);
  for (const Quantity* each : every) {
    const Quantity& quantity = *each;
    auto known = std::ranges::find_if(all, [&](const Json& entry) { return entry["probe"] == quantity.name; });
    const std::string axes = axes_of(*quantity.probe);
    if (known == all.end()) {
      all.push_back({{"probe", quantity.name}, {"name", short_name(quantity, every)}, {"scheme", quantity.scheme},
          {"section", section_of(quantity)}, {"caption", quantity.probe->caption},
          {"equation", quantity.probe->equation}, {"line", quantity.line}, {"axes", axes},
          {"scale", scale_name(quantity.probe->scale)}, {"marks", marks_of(inspection, quantity)},
          {"layers", Json::array()}});
      known = all.end() - 1;
    }
    (*known)["layers"].push_back(numbers_of(quantity, quantity.probe->axes));
  }
  return all;
}

Json parameters_of(const Inspection& inspection) {
  Json all = Json::array();
  for (const Quantity& parameter : inspection.parameters()) {
    if (parameter.path.find(".position") == std::string::npos && !parameter.path.starts_with("position")) continue;
    Json entry{{"path", parameter.path}, {"frozen", parameter.frozen}};
    entry.update(numbers_of(parameter, ""));
    all.push_back(std::move(entry));
  }
  return all;
}

Json reasons_of(const Inspection& inspection) {
  Json all = Json::array();
  for (const Reason& reason : inspection.reasons()) {
    Json places = Json::array();
    if (!reason.op.empty()) places.push_back(to_text(reason.op, "  ", reason.line));
    all.push_back({{"kind", to_string(reason.stop)}, {"text", meaning_of(reason.stop)},
        {"change", way_out_of(reason.stop)}, {"vanishing", vanishes(reason.stop)}, {"places", places}});
  }
  return all;
}

Json causes_json(const Inspection& inspection) {
  Json all = Json::array();
  for (const Shares& shares : inspection.shares()) {
    index_t entries = 0;
    for (const index_t count : shares.entries) entries += count;
    all.push_back({{"layer", shares.quantity->layer}, {"probe", shares.quantity->name},
        {"head", shares.head < 0 ? Json(nullptr) : Json(shares.head)}, {"entries", entries},
        {"zeros", shares.exact_zeros}, {"by", shares.entries}});
  }
  return all;
}

Json ways_json(const Inspection& inspection) {
  Json all = Json::array();
  for (index_t layer = 0; layer < inspection.subject().model->options().layers; ++layer) {
    for (const WaysTo& to : inspection.ways_of(layer)) {
      const std::string axes = to.name == "x" ? "b t c" : "b h t d";
      Json entry{{"layer", layer}, {"of", to.name}, {"axes", axes.substr(2)},
          {"shape", shape_of(without_batch(to.whole, axes))}, {"bits", bits_of(to.whole)},
          {"difference", to.difference}, {"ways", Json::array()}};
      for (const Way& way : to.ways) {
        entry["ways"].push_back(
            {{"name", name_of(way)}, {"steps", way.steps}, {"value", base64_of(without_batch(way.gradient, axes))}});
      }
      all.push_back(std::move(entry));
    }
  }
  return all;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double total = 0;
  for (std::size_t e = 0; e < a.size(); ++e) total += a[e] * b[e];
  return total;
}

// Of "blocks.3.mlp.hidden": 3.
Json layer_in(const std::string& path) {
  if (!path.starts_with("blocks.")) return nullptr;
  return parse_number<std::int64_t>(path.substr(7, path.find('.', 7) - 7)).value_or(-1);
}

// The step as a graph: nodes in the order in which backward comes by, and what it has not come by.
Json graph_json(const Inspection& inspection) {
  const std::vector<Passage> passages = inspection.graph();
  Json nodes = Json::array({{{"id", "loss"}, {"name", "loss"}, {"layer", nullptr}, {"kind", "loss"}, {"order", 0},
           {"norm", 1.0}, {"path", true}}}),
       edges = Json::array();
  std::map<std::string, index_t> order;
  for (const Passage& passage : passages) {
    order.emplace(passage.to, static_cast<index_t>(order.size()) + 1);
    edges.push_back(
        {{"from", passage.from.empty() ? "loss" : passage.from}, {"to", passage.to}, {"norm", passage.norm}});
  }
  for (const std::vector<Quantity>* all : {&inspection.quantities(), &inspection.parameters()}) {
    for (const Quantity& quantity : *all) {
      const bool reached = order.contains(quantity.path);
      const std::vector<double> gradient =
          reached && quantity.gradient.defined() ? quantity.gradient.to_vector() : std::vector<double>();
      nodes.push_back({{"id", quantity.path}, {"name", quantity.is_parameter ? quantity.path : quantity.name},
          {"layer", layer_in(quantity.path)}, {"kind", quantity.is_parameter ? "parameter" : "quantity"},
          {"order", reached ? order.at(quantity.path) : static_cast<index_t>(order.size()) + 1},
          {"norm", std::sqrt(dot(gradient, gradient))}, {"path", reached}});
    }
  }
  return {{"nodes", nodes}, {"edges", edges}};
}

std::string percent(index_t part, index_t whole) {
  return whole ? fixed(100 * static_cast<double>(part) / static_cast<double>(whole), 1) : "-";
}

// ---- One number as text

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

// "layer=0 head=3 i=41 j=17 of=gates" or "gates ...", "dLoss/dgates ..."
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

}  // namespace

std::string json_of(const Inspection& inspection, const std::vector<EditOutcome>& edits) {
  const Subject& subject = inspection.subject();
  const TransformerOptions& model = subject.model->options();
  Json facts = Json::array(), targets = Json::array();
  for (const auto& [name, value] : subject.facts) facts.push_back({name, value});
  facts.push_back({"loss", report::number(inspection.loss(), 6)});
  for (const auto& answer : subject.answers) targets.push_back(answer ? Json(*answer) : Json(nullptr));
  Json changed = Json::array();
  for (const EditOutcome& each : edits)
    changed.push_back({{"edit", each.text}, {"predicted", each.predicted ? Json(*each.predicted) : Json(nullptr)},
        {"real", each.real}});
  const Json data{{"version", 1}, {"title", subject.title}, {"facts", facts}, {"causal", model.causal},
      {"tokens", subject.texts}, {"targets", targets}, {"layers", model.layers}, {"heads", model.heads},
      {"reasons", reasons_of(inspection)}, {"quantities", quantities_of(inspection)},
      {"parameters", parameters_of(inspection)}, {"routes", ways_json(inspection)}, {"causes", causes_json(inspection)},
      {"edits", changed}, {"graph", graph_json(inspection)}};
  return data.dump(-1, ' ', true, Json::error_handler_t::replace);
}

SafetensorsFile tensors_of(const Inspection& inspection) {
  SafetensorsFile file;
  const auto add = [&](const Quantity& quantity) {
    file.tensors.emplace_back(quantity.path, raw::contiguous(quantity.value));
    if (quantity.gradient.defined()) file.tensors.emplace_back("gradient." + quantity.path, quantity.gradient);
    const Tensor reasons = Tensor::empty(quantity.value.shape(), DType::i32);
    std::ranges::copy(quantity.reasons, reasons.data<std::int32_t>());
    file.tensors.emplace_back("reason." + quantity.path, reasons);
  };
  for (const Quantity& quantity : inspection.quantities()) add(quantity);
  for (const Quantity& parameter : inspection.parameters()) add(parameter);
  for (index_t layer = 0; layer < inspection.subject().model->options().layers; ++layer) {
    for (const WaysTo& to : inspection.ways_of(layer)) {
      for (std::size_t k = 0; k < to.ways.size(); ++k) {
        const std::string name = to_text("way.", layer, ".", to.name, ".", k);
        file.tensors.emplace_back(name, raw::contiguous(to.ways[k].gradient));
        file.metadata.emplace_back(name, name_of(to.ways[k]));
      }
    }
  }
  for (std::size_t code = 0; code < inspection.reasons().size(); ++code) {
    const Reason& reason = inspection.reasons()[code];
    file.metadata.emplace_back(
        to_text("reason ", code), to_text(to_string(reason.stop), "  ", reason.op, "  ", reason.line));
  }
  return file;
}

Table causes_of(const Inspection& inspection) {
  const std::vector<Shares> all = inspection.shares();
  std::vector<Stop> stops;  // that occur
  for (int stop = 1; stop < stop_count; ++stop) {
    const auto occurs = [&](const Shares& shares) {
      for (std::size_t code = 0; code < shares.entries.size(); ++code)
        if (shares.entries[code] > 0 && inspection.reasons()[code].stop == static_cast<Stop>(stop)) return true;
      return false;
    };
    if (std::ranges::any_of(all, occurs)) stops.push_back(static_cast<Stop>(stop));
  }
  std::vector<std::string> header{"layer", "quantity", "head", "entries", "zero %"};
  for (const Stop stop : stops) header.push_back(to_text(to_string(stop), " %"));
  Table table(header);
  for (const Shares& shares : all) {
    index_t entries = 0;
    std::vector<index_t> by_stop(stop_count);
    for (std::size_t code = 0; code < shares.entries.size(); ++code) {
      entries += shares.entries[code];
      by_stop[static_cast<std::size_t>(inspection.reasons()[code].stop)] += shares.entries[code];
    }
    std::vector<std::string> cells{std::to_string(shares.quantity->layer), shares.quantity->name,
        shares.head < 0 ? "-" : std::to_string(shares.head), std::to_string(entries),
        percent(shares.exact_zeros, entries)};
    for (const Stop stop : stops) cells.push_back(percent(by_stop[static_cast<std::size_t>(stop)], entries));
    table.row(std::move(cells));
  }
  return table;
}

Table ways_table(const Inspection& inspection) {
  Table table({"layer", "gradient of", "way", "norm", "along the whole %", "sum against autograd"});
  for (index_t layer = 0; layer < inspection.subject().model->options().layers; ++layer) {
    for (const WaysTo& to : inspection.ways_of(layer)) {
      const std::vector<double> whole = to.whole.to_vector();
      for (const Way& way : to.ways) {
        const std::vector<double> part = way.gradient.to_vector();
        const double along = dot(whole, whole) > 0 ? 100 * dot(part, whole) / dot(whole, whole) : 0;
        table.row({std::to_string(layer), to.name, name_of(way), report::number(std::sqrt(dot(part, part)), 4),
            fixed(along, 1), report::number(to.difference, 2)});
      }
    }
  }
  return table;
}

Table edits_table(const std::vector<EditOutcome>& edits) {
  Table table({"edit", "predicted change of the loss", "real change"});
  for (const EditOutcome& each : edits)
    table.row({each.text, each.predicted ? report::number(*each.predicted) : "-", report::number(each.real)});
  return table;
}

std::string explained(const Inspection& inspection, const std::string& what) {
  const Wanted wanted = wanted_of(what);
  index_t layer = 0;
  for (const auto& [name, position] : wanted.at)
    if (name == "layer") layer = position;
  const index_t layers = inspection.subject().model->options().layers;
  if (layer < 0 || layer >= layers)
    throw InputError("--explain: layer=", layer, " given; 0 to ", layers - 1, " required");
  const Quantity& quantity = quantity_of(inspection, wanted, layer);
  const Shape at = position_in(quantity, wanted);
  std::string out;
  if (inspection.reasons()[quantity.reasons.at(0)].stop == Stop::constant) {
    const index_t place = element_at(at, quantity.value.shape());
    return to_text(number_at(quantity.path, at, quantity.value.to_vector()[static_cast<std::size_t>(place)]),
        "    a constant: ", meaning_of(Stop::constant), '\n');
  }
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
  const index_t element = element_at(at, quantity.value.shape());
  const Reason& reason = inspection.reasons()[quantity.reasons[static_cast<std::size_t>(element)]];
  if (reason.stop != Stop::nothing) {
    out += to_text("  why: ", to_string(reason.stop), ": ", meaning_of(reason.stop));
    if (!reason.op.empty()) out += to_text(" (", reason.op, ", ", reason.line, ")");
    out += '\n';
  }
  return out;
}

}  // namespace whence::look

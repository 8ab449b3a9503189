// The data of the page, for examples/look/viewer/.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "examples/look/graph_picture.h"
#include "examples/look/written.h"
#include "examples/report/encode.h"
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

Json layer_in(const Quantity& quantity) { return quantity.layer < 0 ? Json(nullptr) : Json(quantity.layer); }

Json numbers_of(const Quantity& quantity, const std::string& axes) {
  const Tensor value = without_batch(quantity.value, axes);
  Json entry{{"layer", layer_in(quantity)}, {"shape", shape_of(value)}, {"bits", bits_of(value)},
      {"value", base64_of(value)}, {"gradient", base64_of(without_batch(quantity.gradient, axes))},
      {"reasons", report::base64(quantity.reasons)}};
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
  for (const WaysTo& to : inspection.ways()) {
    const std::string axes = to.name == "x" ? "b t c" : "b h t d";
    Json entry{{"layer", to.layer}, {"of", to.name}, {"axes", axes.substr(2)},
        {"shape", shape_of(without_batch(to.whole, axes))}, {"bits", bits_of(to.whole)}, {"difference", to.difference},
        {"ways", Json::array()}};
    for (const Way& way : to.ways) {
      entry["ways"].push_back(
          {{"name", name_of(way)}, {"steps", way.steps}, {"value", base64_of(without_batch(way.gradient, axes))}});
    }
    all.push_back(std::move(entry));
  }
  return all;
}

Json graph_json(const Inspection& inspection) {
  const Graph graph = graph_of(inspection);
  Json nodes = Json::array(), edges = Json::array();
  const auto layer = [](index_t of) { return of < 0 ? Json(nullptr) : Json(of); };
  static constexpr const char* kinds[] = {"loss", "quantity", "parameter"};
  for (const Graph::Node& node : graph.nodes)
    nodes.push_back({{"id", node.id}, {"name", node.name}, {"layer", layer(node.layer)},
        {"kind", kinds[static_cast<int>(node.kind)]}, {"order", node.order}, {"norm", node.norm},
        {"path", node.reached}});
  for (const Graph::Edge& edge : graph.edges)
    edges.push_back({{"from", edge.from}, {"to", edge.to}, {"norm", edge.norm}});
  return {{"nodes", nodes}, {"edges", edges}};
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

}  // namespace whence::look

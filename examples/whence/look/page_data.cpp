#include "examples/whence/look/page_data.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/look/attribution.h"
#include "examples/whence/look/graph.h"
#include "examples/whence/look/links.h"
#include "examples/whence/report/encode.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

// Before deflating, which leaves about a tenth. A page of 64 tokens has the links of a quarter of its queries.
constexpr double bytes_of_links = 5 << 20;

int bits_of(const Tensor& x) { return x.dtype() == DType::f64 ? 64 : 32; }

// Returns a layer or a head, or null for -1.
Json or_null(index_t number) { return number < 0 ? Json() : Json(number); }

Json shape_of(const Tensor& x) { return Json::List(x.shape().begin(), x.shape().end()); }

// Drops a batch axis of 1. axes_of does the same for the letters.
Tensor without_batch(const Tensor& x, const std::string& axes) {
  return x.defined() && axes.starts_with("b ") && x.size(0) == 1 ? raw::select(x, 0, 0) : x;
}
std::string axes_of(const ProbeInfo& probe) { return probe.axes.starts_with("b ") ? probe.axes.substr(2) : probe.axes; }

const char* scale_name(ProbeInfo::Scale scale) {
  static constexpr const char* names[] = {"unit", "sequential", "diverging"};
  return names[static_cast<int>(scale)];
}

const char* picture_name(SchemeInfo::Picture picture) {
  static constexpr const char* names[] = {"none", "heads", "taps", "turn", "distance", "positions"};
  return names[static_cast<int>(picture)];
}

// Replaces a head's masked pairs by 0, which the page never shows.
Tensor without_masked(const Tensor& x, const Inspection& inspection, const Quantity& quantity) {
  if (!x.defined() || !quantity.probe || !Axes(quantity).has('h')) return x;
  std::vector<double> numbers = x.to_vector();
  for (std::size_t e = 0; e < numbers.size(); ++e)
    if (inspection.stop_of(quantity, e) == Stop::masked) numbers[e] = 0;
  return Tensor::of(numbers, x.shape(), x.dtype());
}

Json numbers_of(const Inspection& inspection, PageNumbers& numbers, const Quantity& quantity) {
  const std::string axes = quantity.probe ? quantity.probe->axes : "";
  const auto shown = [&](const Tensor& x) {
    return numbers.add(without_batch(without_masked(x, inspection, quantity), axes));
  };
  return {{"layer", or_null(quantity.layer)}, {"shape", shape_of(without_batch(quantity.value, axes))},
      {"bits", bits_of(quantity.value)}, {"value", shown(quantity.value)}, {"gradient", shown(quantity.gradient)},
      {"causes", numbers.add(quantity.causes)}};
}

// Returns the bound that the quantity's probe marks, such as the value of p_max. Charts draw it as a line.
Json marks_of(const TransformerOptions& model, const Quantity& quantity) {
  const std::string& mark = quantity.probe->mark;
  if (mark.empty()) return Json::List();
  const SchemeArguments arguments(parse_schemes(quantity.scheme)[0], {model.dim, model.heads, model.length});
  return Json::List{{{"value", arguments.number(mark)}, {"text", mark}}};
}

// Returns the name for `whence schemes`; "" for attention's own quantities.
std::string name_of_scheme(const Quantity& quantity) {
  return quantity.scheme.empty() ? "" : parse_schemes(quantity.scheme)[0].info().name;
}

// Returns the quantities to show, with those of schemes first.
std::vector<const Quantity*> shown(const Inspection& inspection) {
  std::vector<const Quantity*> found;
  for (const Quantity& quantity : inspection.quantities())
    if (quantity.probe && quantity.layer >= 0) found.push_back(&quantity);
  std::ranges::stable_partition(found, [](const Quantity* quantity) { return !quantity->scheme.empty(); });
  return found;
}

// "gates"; or "alibi.bias" if several schemes have a quantity of that name.
std::string short_name(const Quantity& quantity, const std::vector<const Quantity*>& all) {
  for (const Quantity* other : all)
    if (other->probe->name == quantity.probe->name && other->name != quantity.name)
      return quantity.name.substr(quantity.name.find('.') + 1);
  return quantity.probe->name;
}

// Describes each quantity, in order of first occurrence. "layers" has its `numbers` in each layer: numbers[k] is for all[k].
Json by_name(
    const TransformerOptions& model, const std::vector<const Quantity*>& all, const std::vector<Json>& numbers) {
  Json::List entries;
  std::set<std::string> known;
  for (const Quantity* quantity : all) {
    if (!known.insert(quantity->name).second) continue;
    Json::List layers;
    for (std::size_t k = 0; k < all.size(); ++k)
      if (all[k]->name == quantity->name) layers.push_back(numbers[k]);
    const ProbeInfo& probe = *quantity->probe;
    entries.push_back({{"probe", quantity->name}, {"name", short_name(*quantity, all)}, {"scheme", quantity->scheme},
        {"scheme_name", name_of_scheme(*quantity)}, {"caption", probe.caption}, {"equation", probe.equation},
        {"line", quantity->line}, {"axes", axes_of(probe)}, {"scale", scale_name(probe.scale)},
        {"marks", marks_of(model, *quantity)}, {"layers", layers}});
  }
  return entries;
}

Json quantities_of(const Inspection& inspection, PageNumbers& numbers) {
  const std::vector<const Quantity*> all = shown(inspection);
  std::vector<Json> layers;
  for (const Quantity* quantity : all) layers.push_back(numbers_of(inspection, numbers, *quantity));
  return by_name(inspection.subject().model->options(), all, layers);
}

Json parameters_of(const Inspection& inspection, PageNumbers& numbers) {
  Json::List all;
  for (const Quantity& parameter : inspection.parameters()) {
    if (parameter.path.find(".position") == std::string::npos && !parameter.path.starts_with("position")) continue;
    all.push_back(
        numbers_of(inspection, numbers, parameter).add("path", parameter.path).add("frozen", parameter.frozen));
  }
  return all;
}

Json causes_json(const Inspection& inspection) {
  Json::List all;
  for (const Cause& cause : inspection.causes()) {
    Json::List places;
    if (!cause.op.empty()) places.push_back(to_text(cause.op, "  ", cause.line));
    all.push_back({{"kind", to_string(cause.stop)}, {"text", meaning_of(cause.stop)},
        {"change", way_out_of(cause.stop)}, {"vanishing", vanishes(cause.stop)}, {"places", places}});
  }
  return all;
}

Json shares_json(const Inspection& inspection) {
  Json::List all;
  for (const Shares& shares : inspection.shares())
    all.push_back({{"layer", shares.quantity->layer}, {"probe", shares.quantity->name}, {"head", or_null(shares.head)},
        {"entries", shares.count}, {"zeros", shares.exact_zeros}, {"by", shares.entries}});
  return all;
}

// Returns the inner products of the vectors along the last axis.
std::vector<double> vector_products(const Tensor& a, const Tensor& b) {
  const std::vector<double> left = a.to_vector(), right = b.to_vector();
  const auto width = static_cast<std::size_t>(a.size(-1));
  std::vector<double> products(left.size() / width);
  for (std::size_t k = 0; k < left.size(); ++k) products[k / width] += left[k] * right[k];
  return products;
}

// Returns, for every head and token, the norm of each path and its part along the whole gradient.
Json paths_json(const Inspection& inspection, PageNumbers& numbers) {
  const auto root = [](std::vector<double> squares) {
    for (double& square : squares) square = std::sqrt(square);
    return squares;
  };
  Json::List all;
  for (const PathsTo& to : inspection.paths()) {
    const std::vector<double> norm = root(vector_products(to.whole, to.whole));
    Json::List paths, shape;
    for (const GradientPath& path : to.paths) {
      std::vector<double> along = vector_products(path.gradient, to.whole);
      for (std::size_t k = 0; k < along.size(); ++k) along[k] = norm[k] > 0 ? along[k] / norm[k] : 0;
      paths.push_back({{"name", name_of(path)}, {"steps", path.steps},
          {"norm", numbers.add(root(vector_products(path.gradient, path.gradient)))}, {"along", numbers.add(along)}});
    }
    for (int axis = 1; axis + 1 < to.whole.rank(); ++axis) shape.push_back(to.whole.size(axis));
    all.push_back({{"layer", to.layer}, {"of", to.name}, {"axes", to.name == "x" ? "t" : "h t"}, {"shape", shape},
        {"norm", numbers.add(norm)}, {"difference", to.difference}, {"paths", paths}});
  }
  return all;
}

// Stores elements as differences. These compress well, because most links continue as the last one did.
Json steps_of(PageNumbers& numbers, std::vector<std::uint32_t> elements) {
  std::adjacent_difference(elements.begin(), elements.end(), elements.begin());
  return numbers.add(elements);
}

// Stores derivatives in the dtype of the pass. "b" is null if it equals "a".
Json links_json(const Links& links, DType dtype, PageNumbers& numbers) {
  Json::List all;
  for (const Link& link : links.all) {
    std::vector<std::uint32_t> a, b;
    std::vector<double> derivatives;
    for (const Link::Entry& entry : link.entries)
      a.push_back(entry.a), b.push_back(entry.b), derivatives.push_back(entry.derivative);
    const Tensor derivative = Tensor::of(derivatives, {static_cast<index_t>(derivatives.size())}, dtype);
    all.push_back({{"layer", link.layer}, {"from", link.from}, {"to", link.to}, {"bits", bits_of(derivative)},
        {"a", steps_of(numbers, a)}, {"b", b == a ? Json() : steps_of(numbers, b)},
        {"derivative", numbers.add(derivative)}});
  }
  return all;
}

Json graph_json(const Inspection& inspection) {
  const Graph graph = graph_of(inspection);
  Json::List nodes, edges, boxes;
  static constexpr const char* kinds[] = {"loss", "quantity", "parameter"};
  for (const Graph::Node& node : graph.nodes)
    nodes.push_back({{"id", node.id}, {"layer", or_null(node.layer)}, {"kind", kinds[static_cast<int>(node.kind)]},
        {"order", node.order}, {"norm", node.norm}, {"path", node.reached}, {"box", node.box}, {"group", node.group}});
  for (const Graph::Edge& edge : graph.edges)
    edges.push_back({{"from", edge.from}, {"to", edge.to}, {"norm", edge.norm}});
  for (const Graph::Box& box : graph.boxes)
    boxes.push_back({{"id", box.id}, {"name", box.name}, {"layer", or_null(box.layer)},
        {"kind", kinds[static_cast<int>(box.kind)]}, {"column", box.column}, {"lane", box.lane}});
  return {{"nodes", nodes}, {"edges", edges}, {"boxes", boxes}};
}

// Returns each scheme's registration, the outer ones first.
Json schemes_json(const TransformerOptions& model) {
  Json::List all;
  for (const SchemeSpec& spec : parse_schemes(model.scheme))
    for (const SchemeSpec* each = &spec; each; each = each->base()) {
      const SchemeInfo& info = each->info();
      all.push_back({{"name", info.name}, {"title", info.title}, {"paper", info.paper}, {"equation", info.equation},
          {"picture", picture_name(info.picture)}});
    }
  return all;
}

Json optional_json(std::optional<double> number) { return number ? Json(*number) : Json(); }

Json knob_json(const Inspection& inspection, const Knob& knob) {
  Json::List stops;
  for (const Turned& stop : knob.stops) stops.push_back(json_of(inspection, stop));
  return {{"at", knob.at}, {"change", knob.change}, {"value", optional_json(knob.value)}, {"effect", knob.effect},
      {"layer", knob.pair.layer}, {"head", knob.pair.head}, {"i", knob.pair.i}, {"j", knob.pair.j}, {"stops", stops}};
}

// Adds the data of the story (look/story.h), computed in f64: in f32 small effects are rounding.
void add_story(Json& data, const Inspection& shown) {
  const Subject twin = shown.subject().in_doubles();
  const Inspection inspection(twin, false, shown.prepare());
  Json::List heads;
  for (const HeadEffect& each : effects_of_heads(inspection))
    heads.push_back(json_of(each.outcome).add("layer", each.layer).add("head", each.head));
  data.add("effects", heads);
  if (const auto knob = knob_of(inspection)) data.add("knob", knob_json(inspection, *knob));
}

// Returns the data that all pages have.
Json json_of_subject(const Inspection& looked) {
  const Subject& subject = looked.subject();
  const TransformerOptions& model = subject.model->options();
  Json::List facts, targets;
  for (const auto& [name, value] : subject.facts) facts.push_back(Json::List{name, value});
  facts.push_back(Json::List{"loss", digits(looked.loss(), 6)});
  for (const auto& answer : subject.answers) targets.push_back(answer ? Json(*answer) : Json());
  Json::List predictions;
  for (const auto& each : looked.predictions()) predictions.push_back(each ? prediction_json(*each) : Json());
  return {{"version", 1}, {"title", subject.title}, {"label", subject.label}, {"command", subject.command},
      {"scheme", subject.model->scheme()}, {"asks", subject.asks}, {"facts", facts}, {"schemes", schemes_json(model)},
      {"causal", model.causal}, {"tokens", subject.texts}, {"targets", targets}, {"predictions", predictions},
      {"layers", model.layers}, {"heads", model.heads}, {"key_heads", model.key_heads()}};
}

}  // namespace

Json prediction_json(const Prediction& prediction) {
  const auto pair = [](const Prediction::Answer& answer) { return Json::List{answer.text, answer.probability}; };
  Json::List likeliest;
  for (const Prediction::Answer& answer : prediction.likeliest) likeliest.push_back(pair(answer));
  return {{"loss", prediction.loss}, {"wanted", pair(prediction.wanted)}, {"likeliest", likeliest}};
}

Json palettes_json() {
  const auto palette = [](report::Scale scale) {
    std::string colours;
    for (int stop = 0; stop < 256; ++stop) colours += report::colour_of(scale, stop / 255.0);
    return colours;
  };
  return {{"sequential", palette(report::Scale::sequential)}, {"day", palette(report::Scale::diverging_by_day)},
      {"night", palette(report::Scale::diverging_by_night)}};
}

Json PageNumbers::add(const Tensor& x) {
  if (!x.defined()) return {};
  const Tensor flat =
      raw::contiguous(x.dtype() == DType::f64 || x.dtype() == DType::f32 ? x : raw::cast(x, DType::f32));
  return place_of({reinterpret_cast<const std::uint8_t*>(flat.bytes()),
      static_cast<std::size_t>(flat.numel()) * size_of(flat.dtype())});
}

Json PageNumbers::place_of(std::span<const std::uint8_t> array) {
  const auto json_of = [](std::size_t at, std::size_t bytes) { return Json{{"at", at}, {"bytes", bytes}}; };
  const std::size_t hash = std::hash<std::string_view>{}({reinterpret_cast<const char*>(array.data()), array.size()});
  for (auto [known, end] = places_.equal_range(hash); known != end; ++known)
    if (const auto [at, bytes] = known->second; std::ranges::equal(array, std::span(block_).subspan(at, bytes)))
      return json_of(at, bytes);
  const std::size_t at = block_.size();
  block_.insert(block_.end(), array.begin(), array.end());
  block_.resize((block_.size() + 7) / 8 * 8);  // aligns arrays of doubles
  places_.emplace(hash, std::pair(at, array.size()));
  return json_of(at, array.size());
}

std::string PageNumbers::text() const { return report::base64(report::deflated(block_)); }

Json json_of(const EditOutcome& outcome) {
  return {{"edit", outcome.text}, {"predicted", optional_json(outcome.predicted)}, {"real", outcome.real}};
}

Json json_of(const Inspection& inspection, const Turned& stop) {
  const std::vector<const Quantity*> all = shown(inspection);
  Json::List rows;
  for (const Turned::Row& row : stop.rows)
    rows.push_back({{"probe", short_name(*row.quantity, all)}, {"value", row.numbers}});
  return json_of(stop.outcome)
      .add("number", stop.number)
      .add("loss", inspection.loss() + stop.outcome.real)
      .add("prediction", stop.prediction ? prediction_json(*stop.prediction) : Json())
      .add("rows", rows);
}

Json json_of_pass(const Inspection& inspection, PageNumbers& numbers) {
  return json_of_subject(inspection)
      .add("causes", causes_json(inspection))
      .add("quantities", quantities_of(inspection, numbers))
      .add("parameters", parameters_of(inspection, numbers))
      .add("shares", shares_json(inspection))
      .add("paths", paths_json(inspection, numbers));
}

Json json_of(const Inspection& inspection, PageNumbers& numbers, bool links, bool edited) {
  Json data = json_of_pass(inspection, numbers);
  data.add("graph", graph_json(inspection))
      .add("palettes", palettes_json())
      .add("logits", logits_json(inspection, numbers));
  if (!edited) add_story(data, inspection);
  if (links && inspection.explains()) {
    const Links found = links_of(inspection, bytes_of_links);
    Json::List left_out;
    for (const auto& [layer, from] : found.left_out) left_out.push_back(Json::List{layer, from});
    data.add("links", links_json(found, inspection.subject().dtype(), numbers));
    data.add("link_rows", found.rows).add("left_out", left_out);
  }
  return data;
}

}  // namespace whence::look

#include "examples/whence/look/page_data.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "examples/whence/look/axes.h"
#include "examples/whence/look/graph.h"
#include "examples/whence/look/links.h"
#include "examples/whence/report/colours.h"
#include "examples/whence/report/deflate.h"
#include "examples/whence/report/encode.h"
#include "nn/io/json.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

// Before they are deflated, to a tenth or so: a page of 64 tokens has a quarter of its queries.
constexpr double bytes_of_links = 8 << 20;

Json json_of(const PageNumbers::Place& place) { return {{"at", place.at}, {"bytes", place.bytes}}; }

template <class T> Json place_of(PageNumbers& numbers, const std::vector<T>& array) {
  return json_of(numbers.add({reinterpret_cast<const std::uint8_t*>(array.data()), array.size() * sizeof(T)}));
}

Json place_of(PageNumbers& numbers, const Tensor& x) {
  if (!x.defined()) return {};
  const Tensor flat =
      raw::contiguous(x.dtype() == DType::f64 || x.dtype() == DType::f32 ? x : raw::cast(x, DType::f32));
  return json_of(numbers.add({reinterpret_cast<const std::uint8_t*>(flat.bytes()),
      static_cast<std::size_t>(flat.numel()) * size_of(flat.dtype())}));
}

int bits_of(const Tensor& x) { return x.dtype() == DType::f64 ? 64 : 32; }

Json shape_of(const Tensor& x) {
  Json::List shape;
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

Json layer_in(const Quantity& quantity) { return quantity.layer < 0 ? Json() : Json(quantity.layer); }

// What a head has at a pair that the mask hides is shown nowhere.
Tensor without_masked(const Tensor& x, const Inspection& inspection, const Quantity& quantity) {
  if (!x.defined() || !quantity.probe || !Axes(quantity).has('h')) return x;
  std::vector<double> numbers = x.to_vector();
  for (std::size_t e = 0; e < numbers.size(); ++e)
    if (inspection.reasons()[quantity.reasons[e]].stop == Stop::masked) numbers[e] = 0;
  return Tensor::of(numbers, x.shape(), x.dtype());
}

Json numbers_of(const Inspection& inspection, PageNumbers& numbers, const Quantity& quantity) {
  const std::string axes = quantity.probe ? quantity.probe->axes : "";
  const auto shown = [&](const Tensor& x) {
    return place_of(numbers, without_batch(without_masked(x, inspection, quantity), axes));
  };
  return {{"layer", layer_in(quantity)}, {"shape", shape_of(without_batch(quantity.value, axes))},
      {"bits", bits_of(quantity.value)}, {"value", shown(quantity.value)}, {"gradient", shown(quantity.gradient)},
      {"reasons", place_of(numbers, quantity.reasons)}};
}

// The line worth drawing on a scale of the value.
Json marks_of(const TransformerOptions& model, const Quantity& quantity) {
  Json::List marks;
  if (const auto mark = mark_of(model, quantity)) marks.push_back({{"value", *mark}, {"text", quantity.probe->mark}});
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

// What a quantity is, whatever its numbers; those of its layers are put behind it.
Json head_of(const TransformerOptions& model, const Quantity& quantity, std::string short_name) {
  return {{"probe", quantity.name}, {"name", std::move(short_name)}, {"scheme", quantity.scheme},
      {"section", section_of(quantity)}, {"caption", quantity.probe->caption}, {"equation", quantity.probe->equation},
      {"line", quantity.line}, {"axes", axes_of(*quantity.probe)}, {"scale", scale_name(quantity.probe->scale)},
      {"marks", marks_of(model, quantity)}};
}

// A quantity of all layers: what it is, and the numbers of each.
struct Entry {
  std::string probe;
  Json head;
  Json::List layers;
};
void add_layer(std::vector<Entry>& all, const TransformerOptions& model, const Quantity& quantity,
    const std::vector<const Quantity*>& every, Json layer) {
  auto known = std::ranges::find(all, quantity.name, &Entry::probe);
  if (known == all.end())
    known = all.insert(known, {quantity.name, head_of(model, quantity, short_name(quantity, every)), {}});
  known->layers.push_back(std::move(layer));
}
Json json_of(std::vector<Entry> entries) {
  Json::List all;
  for (Entry& entry : entries) all.push_back(entry.head.add("layers", std::move(entry.layers)));
  return all;
}

Json quantities_of(const Inspection& inspection, PageNumbers& numbers) {
  std::vector<Entry> all;
  const std::vector<const Quantity*> every = shown(inspection);
  for (const Quantity* quantity : every)
    add_layer(all, inspection.subject().model->options(), *quantity, every, numbers_of(inspection, numbers, *quantity));
  return json_of(std::move(all));
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

Json reasons_of(const Inspection& inspection) {
  Json::List all;
  for (const Reason& reason : inspection.reasons()) {
    Json::List places;
    if (!reason.op.empty()) places.push_back(to_text(reason.op, "  ", reason.line));
    all.push_back({{"kind", to_string(reason.stop)}, {"text", meaning_of(reason.stop)},
        {"change", way_out_of(reason.stop)}, {"vanishing", vanishes(reason.stop)}, {"places", places}});
  }
  return all;
}

Json causes_json(const Inspection& inspection) {
  Json::List all;
  for (const Shares& shares : inspection.shares()) {
    index_t entries = 0;
    for (const index_t count : shares.entries) entries += count;
    all.push_back({{"layer", shares.quantity->layer}, {"probe", shares.quantity->name},
        {"head", shares.head < 0 ? Json() : Json(shares.head)}, {"entries", entries}, {"zeros", shares.exact_zeros},
        {"by", shares.entries}});
  }
  return all;
}

Json ways_json(const Inspection& inspection, PageNumbers& numbers) {
  Json::List all;
  for (const WaysTo& to : inspection.ways()) {
    const std::string axes = to.name == "x" ? "b t c" : "b h t d";
    Json::List ways;
    for (const Way& way : to.ways)
      ways.push_back({{"name", name_of(way)}, {"steps", way.steps},
          {"value", place_of(numbers, without_batch(way.gradient, axes))}});
    all.push_back({{"layer", to.layer}, {"of", to.name}, {"axes", axes.substr(2)},
        {"shape", shape_of(without_batch(to.whole, axes))}, {"bits", bits_of(to.whole)}, {"difference", to.difference},
        {"ways", ways}});
  }
  return all;
}

// Elements as differences, which repeat themselves: most links go on as the last one did.
Json steps_of(PageNumbers& numbers, std::vector<std::uint32_t> elements) {
  std::adjacent_difference(elements.begin(), elements.end(), elements.begin());
  return place_of(numbers, elements);
}

// Derivatives in the numbers' own dtype; "b" is left out where it is "a".
Json links_json(const Links& links, DType dtype, PageNumbers& numbers) {
  Json::List all;
  for (const Link& link : links.all) {
    const bool is_f64 = dtype == DType::f64;
    const std::vector<float> rounded(link.derivative.begin(), link.derivative.end());
    all.push_back({{"layer", link.layer}, {"from", link.from}, {"to", link.to}, {"bits", is_f64 ? 64 : 32},
        {"a", steps_of(numbers, link.a)}, {"b", link.b == link.a ? Json() : steps_of(numbers, link.b)},
        {"derivative", is_f64 ? place_of(numbers, link.derivative) : place_of(numbers, rounded)}});
  }
  return all;
}

Json graph_json(const Inspection& inspection) {
  const Graph graph = graph_of(inspection);
  Json::List nodes, edges, boxes;
  const auto layer = [](index_t of) { return of < 0 ? Json() : Json(of); };
  static constexpr const char* kinds[] = {"loss", "quantity", "parameter"};
  for (const Graph::Node& node : graph.nodes)
    nodes.push_back({{"id", node.id}, {"layer", layer(node.layer)}, {"kind", kinds[static_cast<int>(node.kind)]},
        {"order", node.order}, {"norm", node.norm}, {"path", node.reached}, {"box", node.box}, {"group", node.group}});
  for (const Graph::Edge& edge : graph.edges)
    edges.push_back({{"from", edge.from}, {"to", edge.to}, {"norm", edge.norm}});
  for (const Graph::Box& box : graph.boxes)
    boxes.push_back({{"id", box.id}, {"name", box.name}, {"layer", layer(box.layer)},
        {"kind", kinds[static_cast<int>(box.kind)]}, {"column", box.column}, {"lane", box.lane}});
  return {{"nodes", nodes}, {"edges", edges}, {"boxes", boxes}};
}

// 256 colours each, six digits after another.
Json palettes_json() {
  const auto palette = [](report::Scale scale) {
    std::string colours;
    for (int stop = 0; stop < 256; ++stop) colours += report::colour_of(scale, stop / 255.0);
    return colours;
  };
  return {{"sequential", palette(report::Scale::sequential)}, {"day", palette(report::Scale::diverging_by_day)},
      {"night", palette(report::Scale::diverging_by_night)}};
}

void add_all(Json& data, Json::Fields fields) {
  for (Json::Field& field : fields) data.add(std::move(field.name), std::move(field.value));
}

// What every page begins with.
Json json_of_subject(const Subject& subject, double loss) {
  const TransformerOptions& model = subject.model->options();
  Json::List facts, targets;
  for (const auto& [name, value] : subject.facts) facts.push_back(Json::List{name, value});
  facts.push_back(Json::List{"loss", report::number(loss, 6)});
  for (const auto& answer : subject.answers) targets.push_back(answer ? Json(*answer) : Json());
  return {{"version", 1}, {"title", subject.title}, {"label", subject.label}, {"command", subject.command},
      {"facts", facts}, {"causal", model.causal}, {"tokens", subject.texts}, {"targets", targets},
      {"layers", model.layers}, {"heads", model.heads}};
}

Json pools_json(const TransformerOptions& model, const Overview& overview, PageNumbers& numbers) {
  std::vector<Entry> all;
  std::vector<const Quantity*> every;
  for (const Pools& pools : overview.pools) every.push_back(&pools.quantity);
  for (const Pools& pools : overview.pools) {
    const Quantity& quantity = pools.quantity;
    add_layer(all, model, quantity, every,
        {{"layer", quantity.layer}, {"shape", shape_of(pools.maximum)}, {"bits", 32},
            {"maximum", place_of(numbers, pools.maximum)}, {"mean", place_of(numbers, pools.mean)},
            {"gradient", place_of(numbers, pools.gradient)}});
  }
  return json_of(std::move(all));
}

Json windows_json(const std::vector<Window>& windows, PageNumbers& numbers) {
  Json::List all;
  for (const Window& window : windows) {
    Json::List quantities;
    for (const Quantity& quantity : window.quantities)
      quantities.push_back(
          {{"probe", quantity.name}, {"shape", shape_of(quantity.value)}, {"bits", bits_of(quantity.value)},
              {"value", place_of(numbers, quantity.value)}, {"gradient", place_of(numbers, quantity.gradient)}});
    all.push_back({{"layer", window.layer}, {"i", window.i}, {"j", window.j}, {"rows", window.rows},
        {"columns", window.columns}, {"why", window.why}, {"quantities", quantities}});
  }
  return all;
}

}  // namespace

PageNumbers::Place PageNumbers::add(std::span<const std::uint8_t> array) {
  const std::size_t hash = std::hash<std::string_view>{}({reinterpret_cast<const char*>(array.data()), array.size()});
  for (auto [known, end] = places_.equal_range(hash); known != end; ++known)
    if (const Place place = known->second; std::ranges::equal(array, std::span(block_).subspan(place.at, place.bytes)))
      return place;
  const Place place{block_.size(), array.size()};
  block_.insert(block_.end(), array.begin(), array.end());
  block_.resize((block_.size() + 7) / 8 * 8);  // arrays of doubles begin at whole ones
  places_.emplace(hash, place);
  return place;
}

std::string PageNumbers::text() const { return report::base64(report::deflated(block_)); }

std::string json_of(const Inspection& inspection, PageNumbers& numbers, const std::vector<EditOutcome>& edits) {
  Json::List changed;
  for (const EditOutcome& each : edits)
    changed.push_back(
        {{"edit", each.text}, {"predicted", each.predicted ? Json(*each.predicted) : Json()}, {"real", each.real}});
  Json data = json_of_subject(inspection.subject(), inspection.loss());
  add_all(data, {{"reasons", reasons_of(inspection)}, {"quantities", quantities_of(inspection, numbers)},
                    {"parameters", parameters_of(inspection, numbers)}, {"causes", causes_json(inspection)},
                    {"routes", ways_json(inspection, numbers)}, {"edits", changed}, {"graph", graph_json(inspection)},
                    {"palettes", palettes_json()}});
  if (inspection.explains()) {
    const Links links = links_of(inspection, bytes_of_links);
    Json::List left_out;
    for (const auto& [layer, from] : links.left_out) left_out.push_back(Json::List{layer, from});
    add_all(data, {{"links", links_json(links, inspection.quantities().at(0).value.dtype(), numbers)},
                      {"link_rows", links.rows}, {"left_out", left_out}});
  }
  return data.line(Json::Utf8::escaped);
}

std::string checkpoint_json_of(const Inspection& inspection, PageNumbers& numbers) {
  Json data = json_of_subject(inspection.subject(), inspection.loss());
  add_all(data, {{"reasons", reasons_of(inspection)}, {"quantities", quantities_of(inspection, numbers)},
                    {"parameters", parameters_of(inspection, numbers)}, {"causes", causes_json(inspection)}});
  return data.line(Json::Utf8::escaped);
}

std::string json_of(const Overview& overview, const Rows& rows, PageNumbers& numbers) {
  Json data = json_of_subject(rows.subject(), rows.loss());
  add_all(data, {{"reasons", Json::List()}, {"quantities", Json::List()}, {"parameters", Json::List()},
                    {"causes", Json::List()}, {"edits", Json::List()}, {"palettes", palettes_json()},
                    {"overview", {{"tokens", overview.tokens}, {"cell", overview.cell}, {"cells", overview.cells},
                                     {"quantities", pools_json(rows.subject().model->options(), overview, numbers)},
                                     {"windows", windows_json(overview.windows, numbers)},
                                     {"strips", windows_json(overview.strips, numbers)}}}});
  return data.line(Json::Utf8::escaped);
}

}  // namespace whence::look

#include "examples/whence/look/story.h"

#include <algorithm>
#include <cmath>

#include "autograd/inspect/capture.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/place.h"
#include "tensor/error.h"

namespace whence::look {
namespace {

constexpr int stop_count = 11;

// Returns the quantity of pairs of that name in a layer, or null.
const Quantity* pairs_named(const Inspection& inspection, index_t layer, const std::string& name, bool of_scheme) {
  for (const Quantity& quantity : inspection.quantities())
    if (quantity.layer == layer && quantity.has_pairs() && quantity.probe->name == name &&
        quantity.scheme.empty() != of_scheme)
      return &quantity;
  return nullptr;
}

// Returns "gates layer=0", or the full path if another quantity of the layer has that name too.
std::string place_of(const Inspection& inspection, const Quantity& quantity) {
  if (quantity.is_parameter) return quantity.path;
  const auto same = [&](const Quantity& other) {
    return other.probe && other.layer == quantity.layer && other.probe->name == quantity.probe->name;
  };
  if (std::ranges::count_if(inspection.quantities(), same) > 1) return quantity.path;
  return to_text(quantity.probe->name, " layer=", quantity.layer);
}

bool runs_from_0_to_1(const Quantity& quantity) {
  return quantity.probe && quantity.probe->scale == ProbeInfo::Scale::unit;
}

struct KnobPlace {
  const Quantity* quantity;
  std::string at;
};

// Finds the knob that a scheme registers as `knob`, "gates" or "hidden.weight 3=1". Empty if the pass has no such quantity.
std::optional<KnobPlace> registered_knob(const Inspection& inspection, const std::string& knob, const StoryPair& pair) {
  const std::size_t space = knob.find(' ');
  const std::string name = knob.substr(0, space);
  for (const Quantity& parameter : inspection.parameters()) {
    if (parameter.path.find("position.") == std::string::npos || !parameter.path.ends_with("." + name)) continue;
    if (parameter.layer >= 0 && parameter.layer != pair.layer) continue;
    return KnobPlace{&parameter, space == knob.npos ? parameter.path : parameter.path + knob.substr(space)};
  }
  for (const Quantity& quantity : inspection.quantities()) {
    if (quantity.layer != pair.layer || !quantity.probe || quantity.scheme.empty() || quantity.probe->name != name)
      continue;
    std::string at = place_of(inspection, quantity);
    const Axes axes(quantity);
    const bool one = runs_from_0_to_1(quantity);
    for (const auto& [letter, word, place] :
        {std::tuple{'h', " head=", pair.head}, {'i', " i=", pair.i}, {'j', " j=", pair.j}, {'t', " t=", pair.j}})
      if (axes.has(letter) && (one || letter == 'h'))
        at += to_text(word, place * axes.extent(letter) /
                                (letter == 'h' ? inspection.subject().model->options().heads : axes.extent(letter)));
    return KnobPlace{&quantity, at};
  }
  return std::nullopt;
}

// True if the pass has that place. A convolution of one tap has no second tap, for example.
bool has_place(const Inspection& inspection, const std::string& at) {
  try {
    (void)place_named(inspection, at, "knob");
    return true;
  } catch (const InputError&) { return false; }
}

// Returns the first knob of the model's schemes, from the outermost inwards, that this pass has.
std::optional<KnobPlace> knob_of_schemes(const Inspection& inspection, const StoryPair& pair) {
  const std::vector<SchemeSpec> specs = parse_schemes(inspection.subject().model->options().scheme);
  for (const SchemeSpec& spec : specs)
    for (const SchemeSpec* inner = &spec.part(); inner; inner = inner->base())
      if (const std::string& knob = inner->info().knob; !knob.empty())
        if (auto found = registered_knob(inspection, knob, pair); found && has_place(inspection, found->at))
          return found;
  return std::nullopt;
}

std::optional<Prediction> prediction_after(const std::vector<std::optional<Prediction>>& all, index_t t) {
  return all[static_cast<std::size_t>(t)];
}

}  // namespace

std::vector<HeadEffect> effects_of_heads(const Inspection& inspection) {
  std::vector<HeadEffect> all;
  for (index_t layer = 0; layer < inspection.subject().model->options().layers; ++layer) {
    const Quantity* gates = pairs_named(inspection, layer, "gates", true);
    const Quantity* shut = gates ? gates : pairs_named(inspection, layer, "pattern", false);
    if (!shut) continue;
    for (index_t head = 0; head < shut->value.size(1); ++head)
      all.push_back(
          {layer, head, outcome_of(inspection, to_text(place_of(inspection, *shut), " head=", head, " = 0"))});
  }
  return all;
}

const HeadEffect& strongest(const std::vector<HeadEffect>& effects) {
  return *std::ranges::max_element(effects, {}, [](const HeadEffect& each) { return std::abs(each.outcome.real); });
}

StoryPair story_pair(const Inspection& inspection, const std::vector<HeadEffect>& effects) {
  const std::vector<std::optional<Prediction>>& predictions = inspection.predictions();
  const auto last =
      std::find_if(predictions.rbegin(), predictions.rend(), [](const auto& each) { return each.has_value(); });
  const auto tokens = static_cast<index_t>(predictions.size());
  StoryPair pair{
      0, 0, last == predictions.rend() ? tokens - 1 : static_cast<index_t>(predictions.rend() - last) - 1, 0};
  if (!effects.empty()) pair.layer = strongest(effects).layer, pair.head = strongest(effects).head;
  pair.j = pair.i;
  const Quantity* pattern = pairs_named(inspection, pair.layer, "pattern", false);
  if (!pattern) return pair;
  const std::vector<double> shares = pattern->value.to_vector();
  const Axes axes(*pattern);
  double largest = 0;
  for (index_t j = 0; j < tokens; ++j)
    if (const double share = shares[axes.element({0, pair.head, pair.i, j})]; j != pair.i && share > largest)
      largest = share, pair.j = j;
  return pair;
}

Knob knob_at(const Inspection& inspection, const StoryPair& pair) {
  const std::vector<std::optional<Prediction>>& predictions = inspection.predictions();
  Knob knob{.asked = pair.i};
  while (knob.asked + 1 < std::ssize(predictions) && !prediction_after(predictions, knob.asked)) ++knob.asked;
  const auto registered = knob_of_schemes(inspection, pair);
  const Quantity* moved = registered ? registered->quantity : pairs_named(inspection, pair.layer, "scores", false);
  if (!moved) fail("knob_at", "a pass without scores");
  knob.at = registered ? registered->at
                       : to_text(place_of(inspection, *moved), " head=", pair.head, " i=", pair.i, " j=", pair.j);
  knob.change = !registered ? "+=" : runs_from_0_to_1(*moved) ? "=" : "*=";
  const NamedPlace place = place_named(inspection, knob.at, "knob");
  if (std::ranges::all_of(place.ranges, [](const auto& range) { return range.first == range.second; }))
    knob.value = moved->value.to_vector()[Axes(*moved).element(place.single("knob"))];
  for (int k = 0; k < stop_count; ++k) {
    const double number = knob.change == "=" ? k / 10.0 : knob.change == "+=" ? k - 5.0 : k / 5.0;
    EditedPass pass = pass_with(inspection, to_text(knob.at, ' ', knob.change, ' ', exact(number)));
    Knob::Stop stop{number, std::move(pass.outcome), prediction_after(pass.predictions, knob.asked), {}};
    for (const Quantity& quantity : inspection.quantities()) {
      if (quantity.layer != pair.layer || !quantity.has_pairs()) continue;
      const std::vector<double> all = pass.values.at(quantity.path).to_vector();
      const Axes axes(quantity);
      Knob::Row row{&quantity, {}};
      for (index_t j = 0; j < axes.extent('j'); ++j) {
        const std::size_t e =
            axes.element({0, pair.head * axes.extent('h') / inspection.subject().model->options().heads, pair.i, j});
        row.numbers.push_back(inspection.stop_of(quantity, e) == whence::Stop::masked ? 0 : all[e]);
      }
      stop.rows.push_back(std::move(row));
    }
    knob.stops.push_back(std::move(stop));
  }
  return knob;
}

}  // namespace whence::look

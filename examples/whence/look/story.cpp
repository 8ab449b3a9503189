#include "examples/whence/look/story.h"

#include <algorithm>
#include <cmath>

#include "autograd/inspect/capture.h"
#include "examples/whence/cli/numbers.h"
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

// True if the pass has that place. A convolution of one tap has no second tap, for example.
bool has_place(const Inspection& inspection, const std::string& at) {
  try {
    (void)place_named(inspection, at, "knob");
    return true;
  } catch (const InputError&) { return false; }
}

// The quantity of one layer that the knob turns.
struct Turnable {
  const Quantity* quantity;
  index_t layer;
  std::string at;  // the place without its axes: "gates layer=0", "blocks.0.attention.position.hidden.weight 3=1"

  [[nodiscard]] bool is_unit() const { return quantity->probe && quantity->probe->scale == ProbeInfo::Scale::unit; }
  [[nodiscard]] bool is_score() const { return quantity->probe && quantity->scheme.empty(); }
  [[nodiscard]] bool has(char letter) const { return quantity->probe && Axes(*quantity).has(letter); }
  [[nodiscard]] bool has_key() const { return has('j') || has('t'); }
};

// Finds the knob that a scheme registers as `knob`, "gates" or "hidden.weight 3=1".
std::optional<Turnable> registered_knob(const Inspection& inspection, const std::string& knob, index_t layer) {
  const std::size_t space = std::min(knob.find(' '), knob.size());
  const std::string name = knob.substr(0, space);
  for (const Quantity& parameter : inspection.parameters())
    if (parameter.path.find("position.") != std::string::npos && parameter.path.ends_with("." + name) &&
        (parameter.layer < 0 || parameter.layer == layer))
      return Turnable{&parameter, layer, parameter.path + knob.substr(space)};
  for (const Quantity& quantity : inspection.quantities())
    if (quantity.layer == layer && quantity.probe && !quantity.scheme.empty() && quantity.probe->name == name)
      return Turnable{&quantity, layer, place_of(inspection, quantity)};
  return std::nullopt;
}

// Returns what the layer has of the knobs of the model's schemes, from the outermost inwards, and then its scores.
std::vector<Turnable> turned_in(const Inspection& inspection, index_t layer) {
  std::vector<Turnable> all;
  for (const SchemeSpec& spec : parse_schemes(inspection.subject().model->options().scheme))
    for (const SchemeSpec* inner = &spec.part(); inner; inner = inner->base())
      if (const std::string& knob = inner->info().knob; !knob.empty())
        if (auto found = registered_knob(inspection, knob, layer); found && has_place(inspection, found->at))
          all.push_back(*found);
  if (const Quantity* scores = pairs_named(inspection, layer, "scores", false))
    all.push_back({scores, layer, place_of(inspection, *scores)});
  return all;
}

// One setting of the knob that was tried, and the query whose answer it moves the most.
struct Trial {
  Turnable turned;
  StoryPair pair;      // -1: all places along that axis
  std::string change;  // "=", "+=", "*="
  double effect = -1;  // change of the probability of the answer at `asked`
  index_t asked = 0;
};
bool by_effect(const Trial& one, const Trial& other) { return one.effect > other.effect; }

class Search {
 public:
  Search(const Inspection& inspection, double visible)
      : inspection_(inspection), visible_(visible), heads_(inspection.subject().model->options().heads) {
    const index_t layers = inspection.subject().model->options().layers;
    for (index_t layer = 0; layer < layers; ++layer) turned_.push_back(turned_in(inspection, layer));
    find_questions();
  }

  // Tries the first knob of each layer. If none moves an answer visibly, takes a later one that does.
  std::optional<Knob> run() {
    std::optional<Trial> best;
    for (std::size_t rank = 0; !questions_.empty() && (!best || best->effect <= visible_); ++rank) {
      std::vector<Turnable> knobs;
      for (const std::vector<Turnable>& each : turned_)
        if (rank < each.size()) knobs.push_back(each[rank]);
      if (knobs.empty()) break;
      if (const Trial found = best_of(knobs); !best || found.effect > visible_) best = found;
    }
    return best ? std::optional(knob_at(*best)) : std::nullopt;
  }

 private:
  // Tries rows, then single pairs of the best rows, and only if none of these moves an answer visibly, columns and whole heads.
  Trial best_of(const std::vector<Turnable>& knobs) const {
    std::vector<Trial> rows, whole;
    for (const Turnable& turned : knobs)
      for (index_t head = 0; head < (turned.has('h') ? heads_ : 1); ++head) {
        const index_t h = turned.has('h') ? head : -1;
        for (const index_t t : questions_)
          if (turned.has('i')) rows.push_back(tried({turned, {turned.layer, h, t, -1}, scaled(turned)}, {t}));
        if (!turned.has('i')) whole.push_back(tried({turned, {turned.layer, h, -1, -1}, scaled(turned)}, questions_));
      }
    const std::vector<Trial> best = first_of(rows.empty() ? whole : rows, 3);
    Trial chosen = best[0];
    for (const bool column : {false, true}) {
      if (column && rows.empty()) break;
      for (const Trial& each : first_of(at_keys(best, column), 1))
        if (each.effect > visible_ || each.effect > chosen.effect) return each;
    }
    return chosen;
  }

  static std::string scaled(const Turnable& turned) { return turned.is_unit() ? "=" : "*="; }
  static double low_end(const Trial& trial) { return trial.change == "+=" ? -5 : 0; }
  static double high_end(const Trial& trial) { return trial.change == "+=" ? 5 : trial.change == "=" ? 1 : 2; }

  // Returns a trial for each key of these rows: at the row's query, or for a column at all queries.
  std::vector<Trial> at_keys(const std::vector<Trial>& rows, bool column) const {
    std::vector<Trial> all;
    for (const Trial& row : rows) {
      const Turnable& turned = row.turned;
      const index_t i = turned.has('i') && !column ? row.asked : -1;
      const std::string change = turned.is_score() ? "+=" : scaled(turned);
      for (index_t j = 0; turned.has_key() && j <= row.asked; ++j)
        all.push_back(tried(
            {turned, {row.pair.layer, row.pair.head, i, j}, change}, column ? questions_ : std::vector{row.asked}));
    }
    return all;
  }

  static std::vector<Trial> first_of(std::vector<Trial> trials, std::size_t most) {
    std::ranges::stable_sort(trials, by_effect);
    trials.resize(std::min(most, trials.size()));
    return trials;
  }

  // Takes the eight tokens with a target that the model answers best: an answer that breaks tells most.
  void find_questions() {
    constexpr std::size_t most = 8;
    const auto& all = inspection_.predictions();
    for (index_t t = 0; t < std::ssize(all); ++t)
      if (all[static_cast<std::size_t>(t)]) questions_.push_back(t);
    std::ranges::stable_sort(questions_, std::ranges::greater{}, [&](index_t t) { return before(t); });
    questions_.resize(std::min(most, questions_.size()));
  }
  double before(index_t t) const { return inspection_.predictions()[static_cast<std::size_t>(t)]->wanted.probability; }

  std::string at(const Trial& trial) const {
    std::string text = trial.turned.at;
    if (!trial.turned.quantity->probe) return text;
    const Axes axes(*trial.turned.quantity);
    const auto [layer, head, i, j] = trial.pair;
    if (head >= 0) text += to_text(" head=", head * axes.extent('h') / heads_);
    if (i >= 0) text += to_text(" i=", i);
    if (j >= 0) text += to_text(axes.has('j') ? " j=" : " t=", j);
    return text;
  }
  std::string edit_of(const Trial& trial, double number) const {
    return to_text(at(trial), ' ', trial.change, ' ', exact(number));
  }

  Trial tried(Trial trial, const std::vector<index_t>& asked) const {
    for (const double end : {low_end(trial), high_end(trial)}) {
      const EditedPass edited = pass_with(inspection_, edit_of(trial, end));
      for (const index_t t : asked) {
        const double after = edited.predictions[static_cast<std::size_t>(t)]->wanted.probability;
        if (const double effect = std::abs(after - before(t)); effect > trial.effect)
          trial.effect = effect, trial.asked = t;
      }
    }
    return trial;
  }

  // Returns the other key to which the query gives most of its attention.
  index_t strongest_key(index_t layer, index_t head, index_t i) const {
    const Quantity* pattern = pairs_named(inspection_, layer, "pattern", false);
    index_t strongest = i;
    if (!pattern) return strongest;
    double largest = 0;
    for (index_t j = 0; j < i; ++j)
      if (const double share = pattern->value.at({0, head, i, j}); share > largest) largest = share, strongest = j;
    return strongest;
  }

  // Returns the head of the layer that matters most to the query: without its output the answer moves the most.
  index_t head_for(index_t layer, index_t t) const {
    const Quantity* output = find(inspection_.quantities(), layer, "output");
    index_t best = 0;
    double largest = -1;
    for (index_t head = 0; output && head < heads_; ++head) {
      const EditedPass edited = pass_with(inspection_, to_text(output->path, " head=", head, " = 0"));
      const double effect = std::abs(edited.predictions[static_cast<std::size_t>(t)]->wanted.probability - before(t));
      if (effect > largest) largest = effect, best = head;
    }
    return best;
  }

  Knob knob_at(const Trial& trial) const {
    Knob knob{.pair = trial.pair, .at = at(trial), .change = trial.change, .effect = trial.effect};
    StoryPair& pair = knob.pair;
    pair.i = trial.asked;
    if (pair.head < 0) pair.head = head_for(pair.layer, pair.i);
    if (pair.j < 0) pair.j = strongest_key(pair.layer, pair.head, pair.i);
    const NamedPlace place = place_named(inspection_, knob.at, "knob");
    if (std::ranges::all_of(place.ranges, [](const auto& range) { return range.first == range.second; }))
      knob.value = place.quantity->value.to_vector()[Axes(*place.quantity).element(place.single("knob"))];
    for (int k = 0; k < stop_count; ++k) {
      const double number = low_end(trial) + (high_end(trial) - low_end(trial)) * k / (stop_count - 1);
      knob.stops.push_back(turned(inspection_, edit_of(trial, number), number, pair.layer, pair.head, pair.i));
    }
    return knob;
  }

  const Inspection& inspection_;
  double visible_;
  index_t heads_;
  std::vector<std::vector<Turnable>> turned_;  // by layer
  std::vector<index_t> questions_;
};

}  // namespace

std::vector<HeadEffect> effects_of_heads(const Inspection& inspection) {
  std::vector<HeadEffect> all;
  const TransformerOptions& model = inspection.subject().model->options();
  for (index_t layer = 0; layer < model.layers; ++layer)
    if (const Quantity* output = find(inspection.quantities(), layer, "output"))
      for (index_t head = 0; head < model.heads; ++head)
        all.push_back(
            {layer, head, outcome_of(inspection, to_text(place_of(inspection, *output), " head=", head, " = 0"))});
  return all;
}

Turned turned(
    const Inspection& inspection, const std::string& edit, double number, index_t layer, index_t head, index_t i) {
  EditedPass edited = pass_with(inspection, edit);
  const auto answer = std::find_if(
      edited.predictions.begin() + i, edited.predictions.end(), [](const auto& each) { return each.has_value(); });
  Turned made{number, std::move(edited.outcome), {}, {}};
  if (answer != edited.predictions.end()) made.prediction = std::move(*answer);
  const index_t heads = inspection.subject().model->options().heads;
  for (const Quantity& quantity : inspection.quantities()) {
    if (quantity.layer != layer || !quantity.has_pairs()) continue;
    const std::vector<double> all = edited.values.at(quantity.path).to_vector();
    const Axes axes(quantity);
    Turned::Row row{&quantity, {}};
    for (index_t j = 0; j < axes.extent('j'); ++j) {
      const std::size_t e = axes.element({0, head * axes.extent('h') / heads, i, j});
      row.numbers.push_back(inspection.stop_of(quantity, e) == Stop::masked ? 0 : all[e]);
    }
    made.rows.push_back(std::move(row));
  }
  return made;
}

std::optional<Knob> knob_of(const Inspection& inspection, double visible) { return Search(inspection, visible).run(); }

}  // namespace whence::look

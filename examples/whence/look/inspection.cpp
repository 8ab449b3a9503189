#include "examples/whence/look/inspection.h"

#include <algorithm>
#include <cmath>

#include "autograd/backward.h"
#include "autograd/node.h"
#include "autograd/ops.h"
#include "examples/whence/look/axes.h"
#include "examples/whence/machine/memory_plan.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

// The layer of "blocks.3.attention.q"; -1 of what belongs to none.
index_t layer_of(const std::string& path) {
  const std::string front = "blocks.";
  return path.starts_with(front) ? std::stoll(path.substr(front.size())) : -1;
}

// "position.gates" of "blocks.3.attention.position.gates"; elsewhere the whole path.
std::string name_in_attention(const std::string& path) {
  const std::string middle = ".attention.";
  const std::size_t at = path.find(middle);
  return at == std::string::npos ? path : path.substr(at + middle.size());
}

// The last name of a path.
std::string leaf_of(const std::string& path) { return path.substr(path.rfind('.') + 1); }

double largest(const Tensor& x) {
  double result = 0;
  for (const double number : x.to_vector()) result = std::max(result, std::abs(number));
  return result;
}

// Of a subject's pass with all that it keeps, its weights beside it.
std::size_t bytes_of(const TransformerOptions& options, index_t length, DType dtype, std::size_t free) {
  // Logits, scores and their gradients, which need no plan: it would itself make the mask of all pairs.
  const double pairs = static_cast<double>(options.layers * options.heads) * static_cast<double>(length * length);
  const double least = 4 * pairs * static_cast<double>(size_of(dtype));
  if (free != 0 && least > static_cast<double>(free)) return static_cast<std::size_t>(least);
  return planned_peak([&] {
    Transformer model(options);
    model.to(dtype);
    Tape tape;
    Capture capture("*");
    const Tensor tokens = Tensor::zeros({1, length}, DType::i64);
    const Tensor loss = cross_entropy(model(tokens), tokens);
    tape.stop(), capture.stop();
    backward(loss, {}, {.keep_graph = true});
  });
}

}  // namespace

std::string require_memory(const Subject& subject) {
  constexpr std::size_t for_reasons = 8;  // as many times the pass's bytes at most, measured: 2.6 to 7.7
  const std::size_t free = free_memory(Device::cpu());
  const index_t length = subject.tokens.size(1);
  const TransformerOptions& options = subject.model->options();
  const DType dtype = subject.model->parameters().front().tensor.dtype();
  const auto shorter_that_fits = [&]() -> std::string {
    for (index_t shorter = length / 2; shorter >= 2; shorter /= 2)
      if (const std::size_t bytes = for_reasons * bytes_of(options, shorter, dtype, free); bytes <= free)
        return to_text(subject.given ? "q, k and v of " : "--length ", shorter,
            subject.given ? " tokens take " : " takes ", bytes_text(bytes), " at most");
    return "look at a smaller model";
  };
  const std::size_t bytes = bytes_of(options, length, dtype, free);
  const bool fits = free == 0 || bytes <= free;
  const std::string line = require_shown_memory(
      to_text("a pass over ", length, " tokens that keeps all"), bytes, free, fits ? "" : shorter_that_fits());
  return to_text(line, "; up to ", for_reasons, " times that is taken while the reasons of zeros are found");
}

namespace {

// What is known of a probe of these schemes by its path in attention: "position.cope.gates", "position.base.bias".
// Nothing where no scheme names it.
struct FoundProbe {
  const SchemeSpec* scheme;
  const ProbeInfo* probe;
};

std::optional<FoundProbe> find_probe(const std::vector<SchemeSpec>& specs, const std::string& path) {
  const std::string within = path.starts_with("shared.") ? path.substr(7) : path,
                    name = path.substr(path.rfind('.') + 1);
  const auto found_in = [&](const SchemeSpec& spec, std::string rest) -> std::optional<FoundProbe> {
    const SchemeSpec* inner = &spec;
    if (rest.starts_with(spec.info().name + ".")) rest = rest.substr(spec.info().name.size() + 1);
    for (; inner->base() && rest.starts_with("base."); rest = rest.substr(5)) inner = inner->base();
    if (rest != name) return std::nullopt;
    for (const ProbeInfo& probe : inner->info().probes)
      if (probe.name == name) return FoundProbe{inner, &probe};
    return std::nullopt;
  };
  if (!within.starts_with("position.")) return std::nullopt;
  const bool shared = within.size() < path.size();
  for (const bool as_said : {true, false}) {
    for (const SchemeSpec& spec : specs) {
      if ((spec.shared() == shared) != as_said) continue;
      if (auto found = found_in(spec, within.substr(9))) return found;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<Quantity> quantities_of(const Capture& capture, const std::vector<SchemeSpec>& specs) {
  std::vector<Quantity> all;
  for (const std::string& path : capture.names()) {
    const std::string name = name_in_attention(path);
    Quantity quantity{.path = path, .name = name, .layer = layer_of(path)};
    for (const ProbeInfo& probe : attention_probes())
      if (name != path && probe.name == name) quantity.probe = &probe;
    if (const auto found = find_probe(specs, name); found && !quantity.probe)
      quantity.probe = found->probe, quantity.scheme = found->scheme->text();
    const Probed& probed = capture[path];
    quantity.line = to_string(probed.site());
    quantity.value = probed.value(), quantity.gradient = probed.gradient();
    all.push_back(std::move(quantity));
  }
  return all;
}

Inspection::Inspection(const Subject& subject, bool explains)
    : subject_(subject),
      specs_(parse_schemes(subject.model->scheme())),
      tape_(explains ? std::make_unique<Tape>() : nullptr),
      capture_(std::make_unique<Capture>("*")) {
  loss_ = subject.loss();
  loss_value_ = loss_.item();
  if (tape_) tape_->stop();
  capture_->stop();
  for (const std::string& name : capture_->names()) places_.push_back(capture_->place(name));
  backward(loss_, {}, {.keep_graph = true});
  quantities_ = quantities_of(*capture_, specs_);
  find_parameters();
  find_reasons();
}

void Inspection::find_parameters() {
  for (const Module::Parameter& parameter : subject_.model->parameters()) {
    Quantity quantity{.path = parameter.path, .name = parameter.path, .layer = layer_of(parameter.path)};
    quantity.is_parameter = true, quantity.frozen = parameter.frozen;
    quantity.value = parameter.tensor.detach();
    if (!parameter.frozen) {
      quantity.gradient = gradient(parameter.tensor);
      clear_gradient(parameter.tensor);
      places_.push_back(place_of(parameter.path, parameter.tensor));
    }
    parameters_.push_back(std::move(quantity));
  }
}

void Inspection::find_reasons() {
  Zeros zeros = why_zero(loss_, {}, places_);
  reasons_ = std::move(zeros.reasons);
  for (std::vector<Quantity>* all : {&quantities_, &parameters_}) {
    for (Quantity& quantity : *all) {
      if (const auto found = zeros.of.find(quantity.path); found != zeros.of.end()) {
        quantity.reasons = std::move(found->second);
      } else {
        const bool constant = !quantity.is_parameter && capture_->place(quantity.path).results.empty();
        const Stop stop = quantity.frozen ? Stop::frozen : constant ? Stop::constant : Stop::no_path;
        quantity.reasons.assign(static_cast<std::size_t>(quantity.value.numel()), number_of({stop}, reasons_));
      }
      hide_masked(quantity);
    }
  }
}

// What a head has at a pair that the mask hides is no part of the model, whatever stops its gradient. Channels of a
// convolution are, where they have a gradient: they feed their neighbours.
void Inspection::hide_masked(Quantity& quantity) {
  if (!quantity.probe || !subject_.model->options().causal) return;
  const Axes axes(quantity);
  if (!axes.has('i') || !axes.has('j')) return;
  for (std::size_t e = 0; e < quantity.reasons.size(); ++e) {
    const std::vector<index_t> at = axes.position(e);
    const Stop stop = reasons_[quantity.reasons[e]].stop;
    if (at[axes.find('j')] > at[axes.find('i')] && (axes.has('h') || (stop != Stop::nothing && !vanishes(stop))))
      quantity.reasons[e] = number_of({Stop::masked}, reasons_);
  }
}

std::vector<Shares> Inspection::shares() const {
  std::vector<Shares> all;
  for (const Quantity& quantity : quantities_) {
    if (!quantity.probe || quantity.layer < 0) continue;
    const Axes axes(quantity);
    const bool by_head = axes.has('h');
    const index_t heads = by_head ? axes.extent('h') : 1;
    const std::vector<double> gradient =
        quantity.gradient.defined() ? quantity.gradient.to_vector() : std::vector<double>(quantity.reasons.size());
    const std::size_t first = all.size();
    for (index_t head = 0; head < heads; ++head)
      all.push_back({&quantity, by_head ? head : -1, std::vector<index_t>(reasons_.size()), 0});
    for (std::size_t e = 0; e < quantity.reasons.size(); ++e) {
      const index_t head = by_head ? axes.position(e)[axes.find('h')] : 0;
      Shares& shares = all[first + static_cast<std::size_t>(head)];
      ++shares.entries[quantity.reasons[e]];
      shares.exact_zeros += gradient[e] == 0;
    }
  }
  return all;
}

const std::vector<WaysTo>& Inspection::ways() const {
  if (ways_) return *ways_;
  ways_.emplace();
  for (index_t layer = 0; layer < subject_.model->options().layers; ++layer) find_ways(layer);
  return *ways_;
}

void Inspection::find_ways(index_t layer) const {
  const std::string inside = to_text("blocks.", layer, ".attention.");
  std::vector<Place> places;
  for (const Place& place : places_)
    if (place.name.starts_with(inside) && capture_->contains(place.name))
      places.push_back({place.name.substr(inside.size()), place.results});
  for (const char* name : {"x", "q", "k", "v"}) {
    WaysTo found{layer, name, {}, {}};
    const Quantity* whole = nullptr;
    for (const Quantity& quantity : quantities_)
      if (quantity.path == inside + name) whole = &quantity;
    if (!whole || !whole->gradient.defined()) continue;
    found.whole = whole->gradient;
    found.ways = whence::ways(loss_, {}, capture_->place(inside + name), places);
    // By some nothing comes.
    std::erase_if(found.ways, [](const Way& way) { return largest(way.gradient) == 0; });
    std::vector<double> sum(static_cast<std::size_t>(found.whole.numel()));
    for (const Way& way : found.ways) {
      const std::vector<double> numbers = way.gradient.to_vector();
      for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += numbers[e];
    }
    const std::vector<double> expected = found.whole.to_vector();
    for (std::size_t e = 0; e < sum.size(); ++e)
      found.difference = std::max(found.difference, std::abs(sum[e] - expected[e]));
    if (const double size = largest(found.whole); size > 0) found.difference /= size;
    ways_->push_back(std::move(found));
  }
}

Contribution Inspection::explain_value(const std::string& path, const Shape& at) const {
  return whence::explain_value(*tape_, capture_->place(path), at, places_);
}

ExplainedGradient Inspection::explain_gradient(const std::string& path, const Shape& at) const {
  return whence::explain_gradient(*tape_, loss_, capture_->place(path), at, places_);
}

std::map<std::string, std::vector<double>> Inspection::moved(
    const std::string& path, const std::vector<double>& tangent) const {
  return moved_by(*tape_, capture_->place(path), tangent, places_);
}

std::optional<double> mark_of(const TransformerOptions& model, const Quantity& quantity) {
  if (!quantity.probe || quantity.probe->mark.empty()) return std::nullopt;
  const std::vector<SchemeSpec> specs = parse_schemes(quantity.scheme);
  return SchemeArguments(specs[0], {model.dim, model.heads, model.length}).number(quantity.probe->mark);
}

std::string name_of(const Way& way) {
  std::string name;
  for (const std::string& step : way.steps) {
    if (step == "logits" || step == "pattern" || step == "scores" || step == "q" || step == "k" || step == "v" ||
        step == "output")
      continue;
    name += (name.empty() ? "" : " > ") + leaf_of(step);
  }
  const auto passed = [&](const char* step) { return std::ranges::find(way.steps, step) != way.steps.end(); };
  if (name.empty()) name = passed("scores") ? "content" : passed("v") || way.steps.empty() ? "values" : "pattern";
  for (const char* through : {"q", "k"})
    if (passed(through)) name = to_text(through, ": ", name);
  return name;
}

}  // namespace whence::look

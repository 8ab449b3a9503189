#include "examples/whence/look/inspection.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "autograd/backward.h"
#include "autograd/graph.h"
#include "autograd/inspect/capture.h"
#include "autograd/ops.h"
#include "examples/whence/machine/memory.h"
#include "tensor/error.h"

namespace whence::look {
namespace {

std::string leaf_of(const std::string& path) { return path.substr(path.rfind('.') + 1); }

double largest(const std::vector<double>& numbers) {
  double result = 0;
  for (const double number : numbers) result = std::max(result, std::abs(number));
  return result;
}

// Returns the peak memory of a pass that keeps everything, weights included.
std::size_t bytes_of(const TransformerOptions& options, index_t length, DType dtype, std::size_t free) {
  // Logits, scores and their gradients alone. Planning a very long pass would itself allocate the mask of all pairs.
  const double pairs = static_cast<double>(options.layers * options.heads) * static_cast<double>(length * length);
  const double minimum = 4 * pairs * static_cast<double>(size_of(dtype));
  if (free != 0 && minimum > static_cast<double>(free)) return static_cast<std::size_t>(minimum);
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
  constexpr std::size_t for_causes = 8;  // at most 8 times the bytes of the pass; measured: 2.6 to 7.7
  const std::size_t free = free_memory(Device::cpu());
  const index_t length = subject.tokens.size(1);
  const TransformerOptions& options = subject.model->options();
  const DType dtype = subject.dtype();
  const auto shorter_that_fits = [&]() -> std::string {
    for (index_t shorter = length / 2; shorter >= 2; shorter /= 2)
      if (const std::size_t bytes = for_causes * bytes_of(options, shorter, dtype, free); bytes <= free)
        return to_text(subject.given ? "q, k and v of " : "--length ", shorter,
            subject.given ? " tokens take " : " takes ", bytes_text(bytes), " at most");
    return "look at a smaller model";
  };
  const std::size_t bytes = bytes_of(options, length, dtype, free);
  const bool fits = free == 0 || bytes <= free;
  const std::string line = require_shown_memory(
      to_text("a pass over ", length, " tokens that keeps all"), bytes, free, fits ? "" : shorter_that_fits());
  return to_text(line, "; finding the causes of zeros takes up to ", for_causes, " times that");
}

Inspection::Inspection(const Subject& subject, bool explains, Prepare prepare)
    : subject_(subject),
      prepare_(prepare ? std::move(prepare) : [](Capture&) {}),
      specs_(parse_schemes(subject.model->scheme())),
      tape_(explains ? std::make_unique<Tape>() : nullptr),
      capture_(std::make_unique<Capture>("*")) {
  prepare_(*capture_);
  const Subject::Pass pass = subject.pass();
  loss_ = pass.loss, predictions_ = subject.predictions(pass.logits);
  loss_value_ = loss_.item();
  if (tape_) tape_->stop();
  capture_->stop();
  for (const std::string& name : capture_->names()) places_.push_back(capture_->place(name));
  backward(loss_, {}, {.keep_graph = true});
  quantities_ = quantities_of(*capture_, specs_);
  parameters_ = parameters_of(*subject_.model);
  for (const Module::Parameter& parameter : subject_.model->parameters())
    if (!parameter.frozen) places_.push_back(place_of(parameter.path, parameter.tensor));
  find_causes();
}

void Inspection::find_causes() {
  Zeros zeros = why_zero(loss_, {}, places_);
  causes_ = std::move(zeros.causes);
  for (std::vector<Quantity>* all : {&quantities_, &parameters_}) {
    for (Quantity& quantity : *all) {
      if (const auto found = zeros.of.find(quantity.path); found != zeros.of.end()) {
        quantity.causes = std::move(found->second);
      } else {
        const bool constant = !quantity.is_parameter && capture_->place(quantity.path).results.empty();
        const Stop stop = quantity.frozen ? Stop::frozen : constant ? Stop::constant : Stop::no_path;
        quantity.causes.assign(static_cast<std::size_t>(quantity.value.numel()), number_of({stop}, causes_));
      }
      hide_masked(quantity);
    }
  }
}

// Marks a head's masked pairs as masked, whatever stops their gradient: they are no part of the model. Channels of a
// convolution stay, because they feed their neighbours.
void Inspection::hide_masked(Quantity& quantity) {
  if (!quantity.probe || !subject_.model->options().causal) return;
  const Axes axes(quantity);
  if (!axes.has('h') || !axes.has('i') || !axes.has('j')) return;
  for (std::size_t e = 0; e < quantity.causes.size(); ++e)
    if (axes.place(e, 'j') > axes.place(e, 'i')) quantity.causes[e] = number_of({Stop::masked}, causes_);
}

const Quantity& Inspection::at(const std::string& path) const {
  for (const std::vector<Quantity>* all : {&quantities_, &parameters_})
    if (const auto found = std::ranges::find(*all, path, &Quantity::path); found != all->end()) return *found;
  fail("inspection", path, " is not in the pass");
}

std::vector<Shares> Inspection::shares() const {
  std::vector<Shares> all;
  for (const Quantity& quantity : quantities_) {
    if (!quantity.probe || quantity.layer < 0) continue;
    const Axes axes(quantity);
    const bool by_head = axes.has('h');
    const std::vector<double> gradient =
        quantity.gradient.defined() ? quantity.gradient.to_vector() : std::vector<double>(quantity.causes.size());
    const std::size_t first = all.size();
    for (index_t head = 0; head < (by_head ? axes.extent('h') : 1); ++head)
      all.push_back({&quantity, by_head ? head : -1, 0, std::vector<index_t>(causes_.size()), 0});
    for (std::size_t e = 0; e < quantity.causes.size(); ++e) {
      Shares& shares = all[first + static_cast<std::size_t>(by_head ? axes.place(e, 'h') : 0)];
      ++shares.count, ++shares.entries[quantity.causes[e]], shares.exact_zeros += gradient[e] == 0;
    }
  }
  return all;
}

std::map<Stop, index_t> Inspection::by_stop(const Shares& shares) const {
  std::map<Stop, index_t> counts;
  for (std::size_t code = 0; code < shares.entries.size(); ++code)
    if (shares.entries[code] > 0) counts[causes_[code].stop] += shares.entries[code];
  return counts;
}

const std::vector<PathsTo>& Inspection::paths() const {
  if (paths_) return *paths_;
  paths_.emplace();
  for (index_t layer = 0; layer < subject_.model->options().layers; ++layer) find_paths(layer);
  return *paths_;
}

void Inspection::find_paths(index_t layer) const {
  const std::string inside = to_text("blocks.", layer, ".attention.");
  std::vector<Place> places;
  for (const Place& place : places_)
    if (place.name.starts_with(inside) && capture_->contains(place.name))
      places.push_back({place.name.substr(inside.size()), place.results});
  for (const char* name : {"x", "q", "k", "v"}) {
    const Quantity* whole = find(quantities_, layer, name);
    if (!whole || !whole->gradient.defined()) continue;
    PathsTo found{layer, name, whole->gradient, gradient_paths(loss_, {}, capture_->place(inside + name), places)};
    // Some paths carry no gradient.
    std::erase_if(found.paths, [](const GradientPath& path) { return largest(path.gradient.to_vector()) == 0; });
    const std::vector<double> expected = whole->gradient.to_vector();
    std::vector<double> sum(expected.size());
    for (const GradientPath& path : found.paths)
      std::ranges::transform(sum, path.gradient.to_vector(), sum.begin(), std::plus{});
    std::ranges::transform(sum, expected, sum.begin(), std::minus{});
    const double size = largest(expected);
    found.difference = largest(sum) / (size > 0 ? size : 1);
    paths_->push_back(std::move(found));
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

std::string name_of(const GradientPath& path) {
  static const std::set<std::string> every_path{"logits", "pattern", "scores", "q", "k", "v", "output"};
  std::string name;
  for (const std::string& step : path.steps)
    if (!every_path.contains(step)) name += (name.empty() ? "" : " > ") + leaf_of(step);
  const auto passed = [&](const char* step) { return std::ranges::find(path.steps, step) != path.steps.end(); };
  if (name.empty()) name = passed("scores") ? "content" : passed("v") || path.steps.empty() ? "values" : "pattern";
  for (const char* through : {"q", "k"})
    if (passed(through)) name = to_text(through, ": ", name);
  return name;
}

}  // namespace whence::look

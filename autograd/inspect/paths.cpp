// The backward pass with a gradient for each path instead of one for each node.
#include "autograd/inspect/paths.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "autograd/op.h"

namespace whence {
namespace {

using StepNames = std::vector<std::string>;

using Gradients = std::map<StepNames, detail::Arrived>;

double norm_of(const Tensor& x) {
  double sum = 0;
  for (const double number : x.to_vector()) sum += number * number;
  return std::sqrt(sum);
}

// Runs the backward pass with several gradients at a result, one for each sequence of places passed. visit(edge,
// gradients) sees all that has arrived at a result, and leaves there what is to be sent on.
template <class Visit>
void walk(const Tensor& y, const Tensor& start, const std::vector<Place>& targets, const Visit& visit) {
  const detail::Wanted wanted(node_of(y), detail::ids_of(targets));
  detail::Walk<Gradients> walk;
  if (wanted(edge_of(y))) walk.arrive(edge_of(y))[{}].add(start, edge_of(y));
  walk.run_by_result([&](const Edge& edge, Gradients& gradients) {
    if (!gradients.empty()) visit(edge, gradients);
    for (const auto& [steps, gradient] : gradients) {
      std::vector<Tensor> terms = detail::terms_for_inputs(edge, gradient.gradient(), wanted);
      for (std::size_t k = 0; k < terms.size(); ++k) {
        const Edge& input = edge.node->inputs()[k];
        if (terms[k].defined()) walk.arrive(input)[steps].add(std::move(terms[k]), input);
      }
    }
  });
}

}  // namespace

Place place_of(const std::string& name, const Tensor& leaf) {
  if (!leaf.link()) fail("place_of", name, " is ", leaf.shape(), " without history; a leaf or a result required");
  return {name, {edge_of(leaf).id()}};
}

std::vector<GradientPath> gradient_paths(
    const Tensor& y, const Tensor& seed, const Place& x, const std::vector<Place>& places, Site site) {
  const CallSite place(site);
  const Tensor start = detail::checked_seed("gradient_paths", y, seed);
  const RecordingScope values_only(false);
  const Exchange quiet(detail::probes_keep_gradients, false);
  const detail::PlaceNames names = detail::names_of(places);
  const detail::Ids target = detail::ids_of({x});
  Gradients at_x;
  walk(y, start, {x}, [&](const Edge& edge, Gradients& gradients) {
    const auto name = names.find(edge.id());
    Gradients going_on;
    for (auto& [steps, gradient] : gradients) {
      if (target.contains(edge.id())) {
        at_x[steps].add(gradient.take(), edge);
        continue;
      }
      StepNames passed = steps;
      if (name != names.end()) passed.push_back(name->second);
      going_on[passed] = std::move(gradient);
    }
    gradients = std::move(going_on);
  });
  std::vector<GradientPath> found;
  for (auto& [steps, gradient] : at_x) found.push_back({steps, gradient.take()});
  std::ranges::stable_sort(found, {}, [](const GradientPath& path) { return path.steps.size(); });
  return found;
}

std::vector<Passage> passages(const Tensor& y, const Tensor& seed, const std::vector<Place>& places, Site site) {
  const CallSite place(site);
  const Tensor start = detail::checked_seed("passages", y, seed);
  const RecordingScope values_only(false);
  const Exchange quiet(detail::probes_keep_gradients, false);
  const detail::PlaceNames names = detail::names_of(places);
  std::vector<Passage> found;
  walk(y, start, places, [&](const Edge& edge, Gradients& gradients) {
    const auto name = names.find(edge.id());
    if (name == names.end()) return;
    detail::Arrived whole;  // the sum over all paths; the place sends on only this
    for (auto& [from, gradient] : gradients) {
      found.push_back({from.empty() ? "" : from.back(), name->second, norm_of(gradient.gradient())});
      whole.add(gradient.take(), edge);
    }
    gradients.clear();
    gradients[{name->second}] = std::move(whole);
  });
  return found;
}

}  // namespace whence

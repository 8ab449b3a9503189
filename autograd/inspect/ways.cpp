// The backward pass with a gradient for each way instead of one for each node.
#include "autograd/inspect/ways.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "autograd/op.h"
#include "autograd/pass.h"

namespace whence {
namespace {

using Steps = std::vector<std::string>;

using Gradients = std::map<Steps, detail::Arrived>;

double norm_of(const Tensor& x) {
  double sum = 0;
  for (const double number : x.to_vector()) sum += number * number;
  return std::sqrt(sum);
}

// The backward pass with several gradients at a node, told apart by what they have passed.
class WaysPass {
 public:
  // `parts_in`: where ops fall into their parts; nothing: nowhere.
  WaysPass(const std::unordered_set<const Node*>& targets, std::optional<std::string> parts_in, Node* root)
      : wanted_(detail::leading_to(root, targets)), parts_in_(std::move(parts_in)) {}

  // visit(node, gradients) sees each node with all that has arrived there, and leaves what is to go on.
  template <class Visit> void run(Node* root, const Tensor& start, const Visit& visit) {
    if (wanted_.count(root)) arrive(*root, {}, start);
    while (!ready_.empty()) {
      Node& node = *ready_.top();
      ready_.pop();
      Gradients gradients = std::move(arrived_.extract(&node).mapped());
      visit(node, gradients);
      for (const auto& [steps, gradient] : gradients) step(node, steps, gradient.gradient());
    }
  }

 private:
  void arrive(Node& node, const Steps& steps, Tensor gradient) {
    const auto [entry, is_new] = arrived_.try_emplace(&node);
    entry->second[steps].add(std::move(gradient), detail::sum_dtype(node));
    if (is_new) ready_.push(&node);
  }

  void step(Node& node, const Steps& steps, const Tensor& dy) {
    const std::vector<std::string> parts =
        parts_in_ && node.path.starts_with(*parts_in_) ? node.parts() : std::vector<std::string>();
    if (parts.empty()) return send(node, steps, detail::terms_for_inputs(node, dy, &wanted_, false));
    for (std::size_t part = 0; part < parts.size(); ++part) {
      Steps inside = steps;
      inside.push_back(parts[part]);
      send(node, inside, detail::terms_for_inputs(node, dy, &wanted_, false, part));
    }
  }

  void send(const Node& node, const Steps& steps, std::vector<Tensor> terms) {
    for (std::size_t k = 0; k < terms.size(); ++k)
      if (terms[k].defined()) arrive(*node.inputs()[k], steps, std::move(terms[k]));
  }

  std::unordered_set<const Node*> wanted_;
  std::optional<std::string> parts_in_;
  std::unordered_map<Node*, Gradients> arrived_;
  detail::Ready ready_;
};

}  // namespace

Place place_of(const std::string& name, const Tensor& leaf) {
  if (!leaf.link()) fail("place_of", name, " is ", leaf.shape(), " without history; a leaf or a result required");
  return {name, {node_of(leaf)->id}};
}

std::vector<Way> ways(const Tensor& y, const Tensor& seed, const Place& x, const std::vector<Place>& places,
    const std::string& parts_in, Site at) {
  const CallSite place(at);
  const Tensor start = detail::checked_seed("ways", y, seed);
  const RecordingScope values_only(false);
  const detail::ProbesKeepNothing quiet;
  const detail::PlaceNames names = detail::names_of(places);
  const auto targets = detail::nodes_named(detail::names_of({x}), node_of(y));
  Gradients at_x;
  WaysPass(targets, parts_in, node_of(y)).run(node_of(y), start, [&](const Node& node, Gradients& gradients) {
    const auto name = names.find(node.id);
    Gradients going_on;
    for (auto& [steps, gradient] : gradients) {
      if (targets.contains(&node)) {
        at_x[steps].add(gradient.take(), detail::sum_dtype(node));
        continue;
      }
      Steps passed = steps;
      if (name != names.end()) passed.push_back(name->second);
      going_on[passed] = std::move(gradient);
    }
    gradients = std::move(going_on);
  });
  std::vector<Way> found;
  for (auto& [steps, gradient] : at_x) found.push_back({steps, gradient.take()});
  std::ranges::stable_sort(found, {}, [](const Way& way) { return way.steps.size(); });
  return found;
}

std::vector<Passage> passages(const Tensor& y, const Tensor& seed, const std::vector<Place>& places, Site at) {
  const CallSite place(at);
  const Tensor start = detail::checked_seed("passages", y, seed);
  const RecordingScope values_only(false);
  const detail::ProbesKeepNothing quiet;
  const detail::PlaceNames names = detail::names_of(places);
  std::vector<Passage> found;
  WaysPass(detail::nodes_named(names, node_of(y)), std::nullopt, node_of(y))
      .run(node_of(y), start, [&](const Node& node, Gradients& gradients) {
        const auto name = names.find(node.id);
        if (name == names.end()) return;
        detail::Arrived whole;  // what goes on from a place, whichever way it came
        for (auto& [from, gradient] : gradients) {
          found.push_back({from.empty() ? "" : from.back(), name->second, norm_of(gradient.gradient())});
          whole.add(gradient.take(), detail::sum_dtype(node));
        }
        gradients.clear();
        gradients[{name->second}] = std::move(whole);
      });
  return found;
}

}  // namespace whence

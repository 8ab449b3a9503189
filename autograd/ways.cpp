// The backward pass with a gradient for each way instead of one for each node.
#include "autograd/ways.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <unordered_map>

#include "autograd/op.h"
#include "autograd/pass.h"

namespace whence {
namespace {

using Steps = std::vector<std::string>;

class WaysPass {
 public:
  WaysPass(std::unordered_set<const Node*> targets, const std::vector<Place>& places, std::string parts_in, Node* root)
      : targets_(std::move(targets)), wanted_(detail::leading_to(root, targets_)), parts_in_(std::move(parts_in)) {
    for (const Place& place : places)
      for (const std::uint64_t id : place.nodes) names_.emplace(id, place.name);
  }

  void seed(Node* root, const Tensor& gradient) {
    if (wanted_.count(root)) arrive(*root, {}, gradient);
  }

  std::map<Steps, detail::Arrived> run() {
    while (!ready_.empty()) {
      Node& node = *ready_.top();
      ready_.pop();
      auto arrived = std::move(arrived_.extract(&node).mapped());
      for (auto& [steps, gradient] : arrived)
        if (targets_.count(&node))
          found_[steps].add(gradient.take(), detail::sum_dtype(node));
        else
          step(node, passed(node, steps), gradient.gradient());
    }
    return std::move(found_);
  }

 private:
  Steps passed(const Node& node, Steps steps) const {
    if (const auto name = names_.find(node.id); name != names_.end()) steps.push_back(name->second);
    return steps;
  }

  void arrive(Node& node, const Steps& steps, Tensor gradient) {
    const auto [entry, is_new] = arrived_.try_emplace(&node);
    entry->second[steps].add(std::move(gradient), detail::sum_dtype(node));
    if (is_new) ready_.push(&node);
  }

  void step(Node& node, const Steps& steps, const Tensor& dy) {
    const std::vector<std::string> parts = node.path.starts_with(parts_in_) ? node.parts() : std::vector<std::string>();
    if (parts.empty()) return send(node, steps, detail::terms_for_inputs(node, dy, &wanted_, false));
    for (std::size_t part = 0; part < parts.size(); ++part) {
      Steps inside = steps;
      inside.push_back(parts[part]);
      send(node, inside, terms_of_part(node, part, dy));
    }
  }

  std::vector<Tensor> terms_of_part(Node& node, std::size_t part, const Tensor& dy) const {
    const auto inputs = node.inputs();
    const auto needed = std::make_unique<bool[]>(inputs.size());
    std::vector<Tensor> terms(inputs.size());
    for (std::size_t k = 0; k < inputs.size(); ++k) needed[k] = inputs[k] && wanted_.count(inputs[k].get());
    node.backward_of_part(part, dy, {needed.get(), inputs.size()}, terms);
    for (std::size_t k = 0; k < inputs.size(); ++k)
      if (!needed[k]) terms[k] = {};
    return terms;
  }

  void send(const Node& node, const Steps& steps, std::vector<Tensor> terms) {
    for (std::size_t k = 0; k < terms.size(); ++k)
      if (terms[k].defined()) arrive(*node.inputs()[k], steps, std::move(terms[k]));
  }

  std::unordered_set<const Node*> targets_, wanted_;
  std::string parts_in_;
  std::unordered_map<std::uint64_t, std::string> names_;
  std::unordered_map<Node*, std::map<Steps, detail::Arrived>> arrived_;
  detail::Ready ready_;
  std::map<Steps, detail::Arrived> found_;
};

double norm_of(const Tensor& x) {
  double sum = 0;
  for (const double number : x.to_vector()) sum += number * number;
  return std::sqrt(sum);
}

// Gradients by the place that they passed last.
class PassagesPass {
 public:
  PassagesPass(const std::vector<Place>& places, Node* root) {
    std::unordered_set<const Node*> targets;
    for (const Place& place : places) {
      targets.merge(detail::nodes_at(place, root));
      for (const std::uint64_t id : place.nodes) names_.emplace(id, place.name);
    }
    wanted_ = detail::leading_to(root, targets);
  }

  std::vector<Passage> run(Node* root, const Tensor& start) {
    if (wanted_.count(root)) arrive(*root, "", start);
    std::vector<Passage> found;
    while (!ready_.empty()) {
      Node& node = *ready_.top();
      ready_.pop();
      auto arrived = std::move(arrived_.extract(&node).mapped());
      const auto name = names_.find(node.id);
      detail::Arrived whole;  // what goes on from a place, whichever way it came
      for (auto& [from, gradient] : arrived) {
        if (name == names_.end()) {
          send(node, from, gradient.gradient());
          continue;
        }
        found.push_back({from, name->second, norm_of(gradient.gradient())});
        whole.add(gradient.take(), detail::sum_dtype(node));
      }
      if (name != names_.end() && !node.is_leaf()) send(node, name->second, whole.gradient());
    }
    return found;
  }

 private:
  void arrive(Node& node, const std::string& from, Tensor gradient) {
    const auto [entry, is_new] = arrived_.try_emplace(&node);
    entry->second[from].add(std::move(gradient), detail::sum_dtype(node));
    if (is_new) ready_.push(&node);
  }

  void send(Node& node, const std::string& from, const Tensor& dy) {
    std::vector<Tensor> terms = detail::terms_for_inputs(node, dy, &wanted_, false);
    for (std::size_t k = 0; k < terms.size(); ++k)
      if (terms[k].defined()) arrive(*node.inputs()[k], from, std::move(terms[k]));
  }

  std::unordered_set<const Node*> wanted_;
  std::unordered_map<std::uint64_t, std::string> names_;
  std::unordered_map<Node*, std::map<std::string, detail::Arrived>> arrived_;
  detail::Ready ready_;
};

}  // namespace

std::unordered_set<const Node*> detail::nodes_at(const Place& place, const Node* root) {
  std::unordered_set<const Node*> seen{root}, found;
  std::vector<const Node*> pending{root};
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    if (std::ranges::find(place.nodes, node->id) != place.nodes.end()) found.insert(node);
    for (const Ref<Node>& input : node->inputs())
      if (input && seen.insert(input.get()).second) pending.push_back(input.get());
  }
  return found;
}

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
  WaysPass pass(detail::nodes_at(x, node_of(y)), places, parts_in, node_of(y));
  pass.seed(node_of(y), start);
  std::vector<Way> found;
  for (auto& [steps, gradient] : pass.run()) found.push_back({steps, gradient.take()});
  std::ranges::stable_sort(found, {}, [](const Way& way) { return way.steps.size(); });
  return found;
}

std::vector<Passage> passages(const Tensor& y, const Tensor& seed, const std::vector<Place>& places, Site at) {
  const CallSite place(at);
  const Tensor start = detail::checked_seed("passages", y, seed);
  const RecordingScope values_only(false);
  const detail::ProbesKeepNothing quiet;
  return PassagesPass(places, node_of(y)).run(node_of(y), start);
}

}  // namespace whence

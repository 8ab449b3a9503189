// The backward pass.
#include "autograd/backward.h"

#include "autograd/pass.h"
#include "autograd/recording.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using GradientWalk = detail::Walk<detail::Arrived>;

// Sends the gradients at a node's results on to its inputs.
void send(
    GradientWalk& pass, Node& node, std::span<detail::Arrived> arrived, const detail::Wanted* wanted, bool release) {
  std::vector<Tensor> dy;
  for (detail::Arrived& each : arrived) dy.push_back(each.take());
  std::vector<Tensor> terms = detail::terms_for_inputs(node, dy, wanted, release);
  for (std::size_t k = 0; k < terms.size(); ++k)
    if (terms[k].defined()) pass.arrive(node.inputs()[k]).add(std::move(terms[k]), node.inputs()[k]);
}

}  // namespace

std::unordered_map<std::uint64_t, Tensor> detail::gradients_at(
    const Tensor& y, const Tensor& start, Ids targets, bool create_graph, bool release) {
  const Wanted wanted(node_of(y), std::move(targets));
  std::unordered_map<std::uint64_t, Tensor> found;
  const RecordingScope record(create_graph);
  GradientWalk pass;
  if (wanted(edge_of(y))) pass.arrive(edge_of(y)).add(start, edge_of(y));
  pass.run([&](Node& node, std::span<Arrived> arrived) {
    for (std::size_t k = 0; k < arrived.size(); ++k) {
      const Tensor& dy = arrived[k].gradient();
      if (dy.defined() && wanted.is_target(node.id + k))
        found[node.id + k] = create_graph ? dy : in_dtype(dy, node.result(k).dtype);
    }
    if (!node.is_leaf()) send(pass, node, arrived, &wanted, release);
  });
  return found;
}

std::vector<Tensor> grad(
    const Tensor& y, const Tensor& seed, const std::vector<Tensor>& inputs, GradOptions options, Site site) {
  const CallSite place(site);
  const Tensor start = detail::checked_seed("grad", y, seed);
  detail::Ids targets;
  for (const Tensor& input : inputs)
    if (tracked(input)) targets.insert(edge_of(input).id());
  const auto found = detail::gradients_at(y, start, std::move(targets), options.create_graph);
  std::vector<Tensor> result;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const auto entry = tracked(inputs[k]) ? found.find(edge_of(inputs[k]).id()) : found.end();
    if (entry == found.end() && !options.allow_unused) {
      fail(
          "grad", to_text("y does not depend on input ", k, ", ", inputs[k].shape(), "; drop it, or set allow_unused"));
    }
    result.push_back(entry == found.end() ? Tensor() : detail::own(entry->second));
  }
  return result;
}

void backward(const Tensor& loss, const Tensor& seed, BackwardOptions options, Site site) {
  const CallSite place(site);
  Tensor start = detail::checked_seed("backward", loss, seed);
  if (seed.defined()) start = raw::copy(start);  // leaves may keep it, and the caller may write to `seed`
  const RecordingScope record(false);
  GradientWalk pass;
  pass.arrive(edge_of(loss)).add(start, edge_of(loss));
  pass.run([&](Node& node, std::span<detail::Arrived> arrived) {
    if (node.is_leaf())
      static_cast<Leaf&>(node).accumulate(arrived[0].gradient());
    else
      send(pass, node, arrived, nullptr, !options.keep_graph);
  });
}

}  // namespace whence

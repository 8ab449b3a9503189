#include "nn/training/shared.h"

#include "autograd/node.h"
#include "tensor/ranks/ranks.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// Returns all ranks' parts in order.
std::vector<LossSum> parts_of_all(Communicator& ranks, const std::vector<LossSum>& own) {
  std::vector<double> numbers;
  for (const LossSum& part : own) numbers.insert(numbers.end(), {part.loss, part.targets, part.tokens});
  numbers = gather_over_ranks(ranks, numbers);
  std::vector<LossSum> all;
  for (auto part = numbers.begin(); part != numbers.end(); part += 3)
    all.push_back({part[0], part[1], part[2], own.at(0).scale});
  return all;
}

}  // namespace

LossSum SharedGradients::sum(const Optimizer& optimizer, const std::vector<LossSum>& own, std::int64_t n) {
  const LossSum all = total(parts_of_all(ranks_, own), n);
  // Each gradient begins on a cache line.
  const auto room_of = [](const Tensor& x) { return (x.numel() + 63) / 64 * 64; };
  index_t numbers = 0;
  std::vector<Tensor> weights;
  for (const Module::Parameter& parameter : optimizer.parameters()) {
    if (!trained(parameter)) continue;
    weights.push_back(parameter.tensor);
    numbers += room_of(parameter.tensor);
    if (!detail::gradient_as_held(parameter.tensor).defined())
      throw Error("training: no path from the loss to parameter ", parameter.path,
          "; a gradient for every parameter required, as ranks share them");
  }
  const DType dtype = compute_dtype(weights.at(0).dtype());
  if (!gradients_.defined()) gradients_ = Tensor::zeros({numbers}, dtype, weights[0].device());
  std::vector<Tensor> places;
  for (index_t first = 0; const Tensor& weight : weights) {
    places.push_back(raw::reshape(raw::slice(gradients_, 0, first, first + weight.numel()), weight.shape()));
    raw::copy_into(detail::in_dtype(detail::gradient_as_held(weight), dtype), places.back());
    first += room_of(weight);
  }
  sum_over_ranks(ranks_, gradients_);
  for (std::size_t k = 0; k < weights.size(); ++k) set_gradient(weights[k], places[k]);
  return all;
}

}  // namespace whence

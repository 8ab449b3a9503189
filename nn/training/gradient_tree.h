// The order in which the gradients of a step's parts are summed: a tree, so that ranks can do its branches and come to
// the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/backward.h"
#include "autograd/node.h"
#include "nn/training/optim.h"
#include "tensor/raw.h"

namespace whence {

// Leaves in every parameter's gradient the sum over parts [begin, end): by halves while their number is even, so that
// ranks can do branches of the tree, and the odd number that is left in a row, as no rank splits it. As many sums wait
// for their other half as the tree is deep.
template <class OnePart>
void sum_by_halves(Adam& optimizer, std::int64_t begin, std::int64_t end, const OnePart& backward_of) {
  if ((end - begin) % 2 != 0) {
    optimizer.zero_gradients();
    for (std::int64_t part = begin; part < end; ++part) backward_of(part);
    return;
  }
  const std::int64_t middle = begin + (end - begin) / 2;
  sum_by_halves(optimizer, begin, middle, backward_of);
  const bool own = (middle - begin) % 2 == 0;  // a sum that was made here, where another may be added in place
  std::vector<Tensor> left;
  for (const Module::Parameter& parameter : optimizer.parameters())
    left.push_back(tracked(parameter.tensor) ? gradient(parameter.tensor) : Tensor());
  sum_by_halves(optimizer, middle, end, backward_of);
  for (std::size_t k = 0; k < left.size(); ++k) {
    const Tensor& parameter = optimizer.parameters()[k].tensor;
    const Tensor right = tracked(parameter) ? gradient(parameter) : Tensor();
    if (!left[k].defined() && !right.defined()) continue;
    const auto wide = [&](const Tensor& x) { return detail::in_dtype(x, compute_dtype(parameter.dtype())); };
    Tensor sum = left[k];
    if (!left[k].defined() || !right.defined())
      sum = raw::copy(wide(right.defined() ? right : left[k]));
    else if (own)
      raw::add_into(wide(right), sum);
    else
      sum = raw::add(wide(left[k]), wide(right));
    set_gradient(parameter, sum);
  }
}

}  // namespace whence

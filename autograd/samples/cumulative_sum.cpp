// Samples of autograd/ops/cumulative_sum.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

Tensor along(const Tensor& x, int axis, bool reverse, bool wide, Site site) {
  return reverse ? reverse_cumulative_sum(x, axis, wide, site) : cumulative_sum(x, axis, site);
}

std::vector<BadInput> sum_refusals() {
  return {refusal("cumulative_sum: x is []; at least one axis required", cumulative_sum, draw::zeros(), 0),
      refusal("reverse_cumulative_sum: axis 2 given for 2 axes; an axis in [-2, 2) is required", reverse_cumulative_sum,
          draw::zeros(2, 3), 2, false)};
}

const Checked checked({"cumulative_sum",
    drawn<int, bool, bool>(along,
        {{"forwards", {2, 3, 5}, {-1, false, false}}, {"backwards", {4, 9}, {-1, true, false}},
            {"long rows", {2, 67}, {-1, true, false}}, {"one element", {3, 1}, {-1, false, false}},
            {"no elements", {2, 0}, {-1, false, false}}, {"first axis, forwards", {5, 3}, {0, false, false}},
            {"middle axis, backwards", {2, 4, 3}, {1, true, false}}, {"backwards, wide", {4, 40}, {-1, true, true}}}),
    sum_refusals});

}  // namespace
}  // namespace whence

// Running sums along an axis, from either end. The adjoint of one direction is the other.
//   y_j = sum_{l <= j} x_l    dx_l = sum_{j >= l} dy_j        x_l is in every y_j from j = l on
#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// Along the last axis.
Tensor running_sum(const Tensor& x, bool reverse, const Site& at) {
  const auto sums = [](const Tensor& from, bool backwards) {
    const Tensor y = Tensor::like(from);
    kernels(from.device()).cumulative_sum(raw::contiguous(from), backwards, y);
    return y;
  };
  const auto back = [](const Tensor& dy, const Shape&, bool backwards) {
    return running_sum(dy, !backwards, Site::current());
  };
  return linear_map(reverse ? "reverse_cumulative_sum" : "cumulative_sum", at, x, sums, back, reverse);
}

// Another axis than the last changes places with it, before and after.
Tensor along(const Tensor& x, int axis, bool reverse, const Site& at) {
  const CallSite place(at);
  const char* name = reverse ? "reverse_cumulative_sum" : "cumulative_sum";
  raw::require_floating(name, "x", x);
  if (x.rank() == 0) fail(name, "x is []; at least one axis required");
  if (normal_axis(name, axis, x.rank()) == x.rank() - 1) return running_sum(x, reverse, at);
  return transpose(running_sum(transpose(x, axis, -1, at), reverse, at), axis, -1, at);
}

std::vector<BadInput> refusals() {
  return {refusal("cumulative_sum: x is []; at least one axis required", cumulative_sum, draw::zeros(), 0),
      refusal("reverse_cumulative_sum: axis 2 given for 2 axes; an axis in [-2, 2) is required", reverse_cumulative_sum,
          draw::zeros(2, 3), 2)};
}

Tensor reference(const std::vector<Tensor>& in) {
  std::vector<double> y = in[0].to_vector();
  const std::size_t width = static_cast<std::size_t>(in[0].size(-1));
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += i % width ? y[i - 1] : 0;
  return Tensor::of(y, in[0].shape(), DType::f64);
}

const CheckedEntry checked({"cumulative_sum", false,
    drawn<int, bool>(along,
        {{"forwards", {2, 3, 5}, {-1, false}}, {"backwards", {4, 9}, {-1, true}}, {"long rows", {2, 67}, {-1, true}},
            {"one element", {3, 1}, {-1, false}}, {"no elements", {2, 0}, {-1, false}},
            {"first axis, forwards", {5, 3}, {0, false}}, {"middle axis, backwards", {2, 4, 3}, {1, true}}}),
    refusals, reference});

}  // namespace

Tensor cumulative_sum(const Tensor& x, int axis, Site at) { return along(x, axis, false, at); }
Tensor reverse_cumulative_sum(const Tensor& x, int axis, Site at) { return along(x, axis, true, at); }

}  // namespace whence

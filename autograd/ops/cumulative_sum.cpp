// Running sums along an axis, from either end. The adjoint of one direction is the other.
//   y_j = sum_{l <= j} x_l    dx_l = sum_{j >= l} dy_j
#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct CumulativeSum {  // along the last axis
  static constexpr const char* name = "cumulative_sum";
  bool reverse;
  const char* label() const { return reverse ? "reverse_cumulative_sum" : name; }
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const {
    const Tensor y = Tensor::like(x);
    kernels(x.device()).cumulative_sum(raw::contiguous(x), reverse, y);
    return y;
  }
  // y_j = sum_{l <= j} x_l: x_l is in every y_j from j = l on
  Grads<1> backward(const Saved&, const Tensor& dy, Needs<1>) const {
    return {apply(CumulativeSum{!reverse}, Site::current(), dy)};
  }

  static Samples<CumulativeSum> samples() {
    return {{"forwards", {false}, {draw::normal({2, 3, 5})}}, {"backwards", {true}, {draw::normal({4, 9})}},
        {"long rows", {true}, {draw::normal({2, 67})}}, {"one element", {false}, {draw::normal({3, 1})}},
        {"no elements", {false}, {draw::normal({2, 0})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {refusal("cumulative_sum: x is []; at least one axis required", cumulative_sum, draw::zeros(), 0),
        refusal("reverse_cumulative_sum: axis 2 given for 2 axes; an axis in [-2, 2) is required",
            reverse_cumulative_sum, draw::zeros(2, 3), 2)};
  }
  static Tensor reference(const std::vector<Tensor>& in) {
    std::vector<double> y = in[0].to_vector();
    const std::size_t width = static_cast<std::size_t>(in[0].size(-1));
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += i % width ? y[i - 1] : 0;
    return Tensor::of(y, in[0].shape(), DType::f64);
  }
};

// Another axis than the last changes places with it, before and after.
std::vector<CheckedSample> other_axis_samples() {
  return {sample_of("first axis, forwards", draw::normal({5, 3}), cumulative_sum, 0),
      sample_of("middle axis, backwards", draw::normal({2, 4, 3}), reverse_cumulative_sum, 1)};
}

const Checked<CumulativeSum> checked;
const CheckedEntry checked_other_axis({"cumulative_sum along other axes", false, other_axis_samples, {}, {}});

Tensor along(const Tensor& x, int axis, bool reverse, const Site& at) {
  const CallSite place(at);
  const CumulativeSum op{reverse};
  raw::require_floating(op.label(), "x", x);
  if (x.rank() == 0) fail(op.label(), "x is []; at least one axis required");
  if (normal_axis(op.label(), axis, x.rank()) == x.rank() - 1) return apply(op, at, x);
  return transpose(apply(op, at, transpose(x, axis, -1, at)), axis, -1, at);
}

}  // namespace

Tensor cumulative_sum(const Tensor& x, int axis, Site at) { return along(x, axis, false, at); }
Tensor reverse_cumulative_sum(const Tensor& x, int axis, Site at) { return along(x, axis, true, at); }

}  // namespace whence

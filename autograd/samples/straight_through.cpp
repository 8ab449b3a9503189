// Samples of autograd/ops/straight_through.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

// The value is x itself here, so that differences agree. tests/autograd/ops.cpp covers a value other than x.
Tensor of_itself(const Tensor& x, Site site) { return straight_through(x.detach(), x, site); }

std::vector<BadInput> straight_through_refusals() {
  return {refusal("straight_through: x is [3]; [2] required", straight_through, draw::zeros(2), draw::zeros(3)),
      refusal("straight_through: value is f32, x is f64; equal dtypes required; convert with cast", straight_through,
          draw::zeros(2), Tensor::zeros({2}, DType::f64))};
}

const Checked checked(
    {"straight_through", drawn<>(of_itself, {{"of itself", {3, 5}, {}}, {"0-d", {}, {}}, {"nothing", {0, 2}, {}}}),
        straight_through_refusals});

}  // namespace
}  // namespace whence

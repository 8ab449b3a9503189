// Softmax along the last axis.    y_j = e^{x_j} / sum_l e^{x_l} over the entries that the mask allows, else 0
//   dx = y (dy - sum_j y_j dy_j)        If every entry of a row is masked, its y and dx are 0.
#include <algorithm>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct Softmax {
  static constexpr const char* name = "softmax";
  struct Saved {
    SavedTensor y, mask;
  };
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& mask) const {
    raw::require_floating(name, "x", x);
    if (x.rank() == 0) fail(name, "x is []; one axis or more is required; use unsqueeze");
    if (mask.defined()) raw::require_mask(name, x, mask);
    const Tensor y = Tensor::like(x);
    kernels(x).softmax(raw::contiguous(x), mask.defined() ? raw::expand(mask, x.shape()) : mask, y);
    saved.y.output(y);
    if (mask.defined()) saved.mask = mask;  // for stops alone
    return y;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2>) const {
    // The derivative of y_j with respect to x_l is y_j (1 - y_l) for j = l, else -y_j y_l. The mask is not needed again:
    // y is 0 where it is false.
    const Tensor y = saved.y.get();
    // Recorded (create_graph): composed of ops that have derivatives.
    if (recording()) return {multiply(y, subtract(dy, sum(multiply(y, dy), {-1}, true))), Tensor()};
    const Tensor dx = Tensor::like(y);
    kernels(y).softmax_backward(y, raw::contiguous(dy), dx);
    return {dx, Tensor()};
  }
  std::vector<Stop> stops(const Saved& saved, std::size_t) const {
    const Tensor &y = saved.y.peek(), &mask = saved.mask.peek();
    const std::vector<double> weights = y.to_vector();
    const auto width = static_cast<std::size_t>(y.size(-1));
    const std::vector<double> kept =
        mask.defined() ? raw::expand(mask, y.shape()).to_vector() : std::vector(weights.size(), 1.0);
    std::vector<Stop> all;
    std::ptrdiff_t keys = 0;  // of the row
    for (std::size_t e = 0; e < weights.size(); ++e) {
      const auto row = kept.begin() + static_cast<std::ptrdiff_t>(e);
      if (e % width == 0) keys = std::count(row, row + y.size(-1), 1.0);
      all.push_back(kept[e] == 0 ? Stop::masked : stop_of_weight(weights[e], keys));
    }
    return all;
  }
};

}  // namespace

Tensor softmax(const Tensor& x, const Tensor& mask, Site site) { return apply(Softmax{}, site, x, mask); }

}  // namespace whence

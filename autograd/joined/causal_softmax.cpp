// Causal attention weights, with or without a bias by distance.    x:[... i j]  table:[h n]  ->  y:[... i j]
//   y = softmax(x + b) over the entries j <= first_row + i,  b_ij = table[steps of (i, j)], or 0
//   dx = y (dy - sum_j y_j dy_j)        dtable = the sum of dx over each distance
#include <optional>

#include "autograd/backward.h"
#include "autograd/joined/joined_ops.h"
#include "autograd/op.h"
#include "tensor/device/joined_kernels.h"
#include "tensor/pairs.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct CausalSoftmax {
  static constexpr const char* name = "causal_softmax";
  index_t first_row = 0;
  std::optional<Steps> steps = {};  // distances of the bias
  struct Saved {
    SavedTensor y;
  };
  const char* label() const { return steps ? "causal_softmax_by_distance" : name; }
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& table) const {
    check(x, table);
    const Tensor y = Tensor::like(x), logits = raw::contiguous(x);
    JoinedKernels& on = joined_kernels(x);
    if (steps)
      on.causal_softmax_by_distance(logits, steps->on(x.device()), raw::contiguous(table), first_row, y);
    else
      on.causal_softmax(logits, first_row, y);
    saved.y.output(y);
    return y;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2> needs) const {
    const Tensor y = saved.y.get();
    if (recording()) {
      const Tensor dlogits = y * (dy - sum(y * dy, {-1}, true));
      const auto bias = [&](const std::vector<Tensor>& in) {
        return expand(by_distance(in[0], steps->on(y.device())), y.shape());
      };
      if (!needs[1]) return {dlogits, Tensor()};
      // The bias is linear in the table, so a table of zeros gives the same derivative.
      const Tensor table = requires_grad(Tensor::zeros({y.size(1), steps->count}, y.dtype(), y.device()));
      return {dlogits, gradients_of(bias, std::array{table}, dlogits)[0]};
    }
    const Tensor dx = Tensor::like(y);
    joined_kernels(y).causal_softmax_backward(y, raw::contiguous(dy), first_row, dx);
    Grads<2> grads{dx, Tensor()};
    if (!needs[1]) return grads;
    grads[1] = Tensor::like(y, {y.size(1), steps->count});
    kernels(y).sum_by_distance(steps->on(y.device()), dx, grads[1]);
    return grads;
  }
  std::vector<Stop> stops(const Saved& saved, std::size_t input) const {
    std::vector<Stop> all;
    if (input != 0) return all;
    const Tensor& y = saved.y.peek();
    const index_t columns = y.size(-1), rows = y.size(-2);
    for (const double weight : y.to_vector()) {
      const index_t e = static_cast<index_t>(all.size()), i = e / columns % rows;
      const index_t keys = std::min(columns, first_row + i + 1);
      all.push_back(e % columns >= keys ? Stop::masked : stop_of_weight(weight, keys));
    }
    return all;
  }

  void check(const Tensor& x, const Tensor& table) const {
    raw::require_floating(label(), "x", x);
    if (first_row < 0) fail(label(), "first_row is ", first_row, "; 0 or more required");
    if (!steps && x.rank() < 2) fail(label(), "x is ", x.shape(), "; [..., i, j] required");
    if (!steps) return;
    if (x.rank() != 4) fail(label(), "x is ", x.shape(), "; [b h i j] required");
    raw::require_alike(label(), "x", x, "table", table);
    raw::require_shape(label(), "table", table, {x.size(1), steps->count});
    const bool fits = x.size(2) == steps->query.size(1) && x.size(3) == steps->key.size(1) &&
                      (steps->batch() == 1 || steps->batch() == x.size(0));
    if (!fits) {
      fail(label(), "x is ", x.shape(), "; steps of ", steps->batch(), " sequences of ", steps->query.size(1),
          " queries and ", steps->key.size(1), " keys given; as many of each required");
    }
  }
};

}  // namespace

Tensor causal_softmax(const Tensor& x, index_t first_row, Site site) {
  return apply(CausalSoftmax{first_row}, site, x, Tensor());
}
Tensor causal_softmax_by_distance(
    const Tensor& x, const Tensor& table, const Steps& steps, index_t first_row, Site site) {
  return apply(CausalSoftmax{first_row, steps}, site, x, table);
}

}  // namespace whence

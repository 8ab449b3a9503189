// Causal attention's weights under a bias by distance.    x:[b h i j]  table:[h n]  ->  y:[b h i j]
//   y = causal_softmax(x + b),  b_ij = table[steps of (i, j)]
//   dx = y (dy - sum_j y_j dy_j)        dtable = the sum of dx over each distance
#include "autograd/backward.h"
#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "autograd/recompute.h"
#include "tensor/joined_kernels.h"
#include "tensor/pairs.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct CausalSoftmaxByDistance {
  static constexpr const char* name = "causal_softmax_by_distance";
  Steps steps;
  index_t first_row = 0;
  struct Saved {
    SavedTensor y;
  };
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& table) const {
    check(x, table);
    const Tensor y = Tensor::like(x);
    joined_kernels(x.device())
        .causal_softmax_by_distance(raw::contiguous(x), steps.on(x.device()), raw::contiguous(table), first_row, y);
    saved.y.output(y);
    return y;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2> needs) const {
    const Tensor y = saved.y.get();
    if (recording()) {
      const Tensor dlogits = y * (dy - sum(y * dy, {-1}, true));
      const auto bias = [&](const std::vector<Tensor>& in) {
        return expand(by_distance(in[0], steps.on(y.device())), y.shape());
      };
      // It is linear in the table, so that any table will do.
      const Tensor table = requires_grad(Tensor::zeros({y.size(1), steps.count}, y.dtype(), y.device()));
      return {dlogits, needs[1] ? gradients_of(bias, std::array{table}, dlogits)[0] : Tensor()};
    }
    const Tensor dx = Tensor::like(y);
    joined_kernels(y.device()).causal_softmax_backward(y, raw::contiguous(dy), first_row, dx);
    Grads<2> grads{dx, Tensor()};
    if (!needs[1]) return grads;
    grads[1] = Tensor::like(y, {y.size(1), steps.count});
    kernels(y.device()).sum_by_distance(steps.on(y.device()), dx, grads[1]);
    return grads;
  }
  void check(const Tensor& x, const Tensor& table) const {
    raw::require_floating(name, "x", x);
    if (x.rank() != 4) fail(name, "x is ", x.shape(), "; [b h i j] required");
    raw::require_alike(name, "x", x, "table", table);
    raw::require_shape(name, "table", table, {x.size(1), steps.count});
    const bool fits = x.size(2) == steps.query.size(1) && x.size(3) == steps.key.size(1) &&
                      (steps.batch() == 1 || steps.batch() == x.size(0));
    if (!fits) {
      fail(name, "x is ", x.shape(), "; steps of ", steps.batch(), " sequences of ", steps.query.size(1),
          " queries and ", steps.key.size(1), " keys given; as many of each required");
    }
    if (first_row < 0) fail(name, "first_row is ", first_row, "; 0 or more required");
  }

  static Steps run(index_t length) {
    const Tensor positions = raw::unsqueeze(Tensor::arange(length), 0);
    return Steps::of(positions, positions, true);
  }
  static Samples<CausalSoftmaxByDistance> samples() {
    const Tensor keys = raw::unsqueeze(Tensor::arange(5), 0), uneven = Tensor::of({0, 2, 3}, {1, 3}, DType::i64);
    return {{"a run", {run(5)}, {draw::normal({2, 2, 5, 5}), draw::normal({2, 5})}},
        {"behind other tokens", {Steps::of(raw::slice(keys, 1, 3, 5), keys, true), 3},
            {draw::normal({1, 3, 2, 5}), draw::normal({3, 5})}},
        {"uneven steps", {Steps::of(uneven, uneven, true)}, {draw::normal({2, 1, 3, 3}), draw::normal({1, 4})}},
        {"one token", {run(1)}, {draw::normal({1, 1, 1, 1}), draw::normal({1, 1})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {refusal("causal_softmax_by_distance: table is [1,3]; [2,3] required", causal_softmax_by_distance,
                draw::zeros(1, 2, 3, 3), draw::zeros(1, 3), run(3), 0),
        refusal(
            "causal_softmax_by_distance: x is [1,1,2,3]; steps of 1 sequences of 3 queries and 3 keys given; as many "
            "of each required",
            causal_softmax_by_distance, draw::zeros(1, 1, 2, 3), draw::zeros(1, 3), run(3), 0)};
  }
  static Tensor reference(const std::vector<Tensor>& in) { return causal_softmax(in[0] + by_distance(in[1], run(5))); }
};

const Checked<CausalSoftmaxByDistance> checked;

}  // namespace

Tensor causal_softmax_by_distance(
    const Tensor& x, const Tensor& table, const Steps& steps, index_t first_row, Site at) {
  return apply(CausalSoftmaxByDistance{steps, first_row}, at, x, table);
}

}  // namespace whence

// Softmax along the last axis.    y_j = e^{x_j} / sum_l e^{x_l} over the entries that the mask lets through, else 0
//   dx = y (dy - sum_j y_j dy_j)        A row without any entry is all 0, in both directions.
#include <optional>

#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "tensor/joined_kernels.h"
#include "tensor/pairs.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct Softmax {
  static constexpr const char* name = "softmax";
  std::optional<index_t> first_row = {};  // causal
  struct Saved {
    SavedTensor y;
  };
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& mask) const {
    raw::require_floating(name, "x", x);
    if (x.rank() == 0) fail(name, "x is []; one axis or more is required; use unsqueeze");
    if (mask.defined()) raw::require_mask(name, x, mask);
    const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    if (first_row)
      joined_kernels(x.device()).causal_softmax(raw::contiguous(x), *first_row, y);
    else
      kernels(x.device()).softmax(raw::contiguous(x), mask.defined() ? raw::expand(mask, x.shape()) : mask, y);
    saved.y.output(y);
    return y;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2>) const {
    // y_j = e^{x_j} / Z: dy_j/dx_l = y_j ([j = l] - y_l). The mask needs no second look: where it is false, y is 0.
    const Tensor y = saved.y.get();
    // While that is recorded (create_graph): from ops that have derivatives.
    if (recording()) return {multiply(y, subtract(dy, sum(multiply(y, dy), {-1}, true))), Tensor()};
    const Tensor dx = Tensor::empty(y.shape(), y.dtype(), y.device());
    if (first_row)
      joined_kernels(y.device()).causal_softmax_backward(y, raw::contiguous(dy), *first_row, dx);
    else
      kernels(y.device()).softmax_backward(y, raw::contiguous(dy), dx);
    return {dx, Tensor()};
  }
  std::vector<Stop> stops(const Saved& saved, std::size_t) const {
    std::vector<Stop> all;
    for (const double weight : saved.y.peek().to_vector()) all.push_back(weight > 0.5 ? Stop::sole : Stop::weightless);
    return all;
  }

  static Samples<Softmax> samples() {
    return {{"no mask", {}, {draw::normal({2, 3, 5}), Tensor()}},
        {"mask that broadcasts", {}, {draw::normal({2, 4, 6}), draw::mask({4, 6}, 0.6)}},
        {"a row that is masked altogether", {},
            {draw::normal({2, 3}), Tensor::of({1, 0, 1, 0, 0, 0}, {2, 3}, DType::boolean)}},
        {"one entry", {}, {draw::normal({3, 1}), Tensor()}}, {"no rows", {}, {draw::normal({0, 4}), Tensor()}},
        {"far apart", {}, {draw::uniform({2, 7}, -30, 30), Tensor()}},
        {"causal", {0}, {draw::normal({2, 2, 4, 4}), Tensor()}},
        {"causal, behind other tokens", {3}, {draw::normal({2, 3, 6}), Tensor()}},
        {"causal, rows that see all", {4}, {draw::normal({3, 5}), Tensor()}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"softmax: mask is f32; bool required; convert with cast",
                [] {
                  (void)softmax(draw::zeros(2, 3), Tensor::ones({2, 3}));
                }},
        {"softmax: x is []; one axis or more is required; use unsqueeze", [] { (void)softmax(Tensor::scalar(1)); }},
        {"causal_softmax: x is [3]; [..., i, j] required", [] { (void)causal_softmax(draw::zeros(3)); }},
        {"causal_softmax: first_row is -1; 0 or more required", [] { (void)causal_softmax(draw::zeros(3, 3), -1); }}};
  }
  static Tensor reference(const std::vector<Tensor>& in) {
    std::vector<double> y = in[0].to_vector();
    const std::size_t width = static_cast<std::size_t>(in[0].size(-1));
    for (std::size_t row = 0; row < y.size(); row += width) {
      double total = 0;
      for (std::size_t j = row; j < row + width; ++j) total += y[j] = std::exp(y[j]);
      for (std::size_t j = row; j < row + width; ++j) y[j] /= total;
    }
    return Tensor::of(y, in[0].shape(), DType::f64);
  }
};

// y = causal_softmax(x + b),  b_ij = table[steps of (i, j)]        dx as above,  dtable = the sum of dx over each distance
struct CausalSoftmaxByDistance {
  static constexpr const char* name = "causal_softmax_by_distance";
  static constexpr bool once = true;
  Steps steps;
  index_t first_row = 0;
  struct Saved {
    SavedTensor y;
  };
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& table) const {
    check(x, table);
    const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    joined_kernels(x.device())
        .causal_softmax_by_distance(raw::contiguous(x), steps.on(x.device()), raw::contiguous(table), first_row, y);
    saved.y.output(y);
    return y;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2> needs) const {
    const Tensor y = saved.y.get(), dx = Tensor::empty(y.shape(), y.dtype(), y.device());
    joined_kernels(y.device()).causal_softmax_backward(y, raw::contiguous(dy), first_row, dx);
    Grads<2> grads{dx, Tensor()};
    if (!needs[1]) return grads;
    grads[1] = Tensor::empty({y.size(1), steps.count}, y.dtype(), y.device());
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

  static Steps steps_of(const std::vector<double>& query, const std::vector<double>& key) {
    const auto row = [](const std::vector<double>& x) {
      return Tensor::of(x, {1, static_cast<index_t>(x.size())}, DType::i64);
    };
    return Steps::of(row(query), row(key), true);
  }
  static Steps run(index_t length) {
    std::vector<double> positions;
    for (index_t t = 0; t < length; ++t) positions.push_back(static_cast<double>(t));
    return steps_of(positions, positions);
  }
  static Samples<CausalSoftmaxByDistance> samples() {
    return {{"a run", {run(5)}, {draw::normal({2, 2, 5, 5}), draw::normal({2, 5})}},
        {"behind other tokens", {steps_of({3, 4}, {0, 1, 2, 3, 4}), 3},
            {draw::normal({1, 3, 2, 5}), draw::normal({3, 5})}},
        {"uneven steps", {steps_of({0, 2, 3}, {0, 2, 3})}, {draw::normal({2, 1, 3, 3}), draw::normal({1, 4})}},
        {"one token", {run(1)}, {draw::normal({1, 1, 1, 1}), draw::normal({1, 1})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"causal_softmax_by_distance: table is [1,3]; [2,3] required",
                [] { (void)causal_softmax_by_distance(draw::zeros(1, 2, 3, 3), draw::zeros(1, 3), run(3)); }},
        {"causal_softmax_by_distance: x is [1,1,2,3]; steps of 1 sequences of 3 queries and 3 keys given; as many of "
         "each required",
            [] { (void)causal_softmax_by_distance(draw::zeros(1, 1, 2, 3), draw::zeros(1, 3), run(3)); }}};
  }
  static Tensor reference(const std::vector<Tensor>& in) {  // of the first sample
    std::vector<double> y;
    for (index_t row = 0; row < 2 * 2 * 5; ++row) {
      const index_t b = row / 10, h = row / 5 % 2, i = row % 5;
      std::vector<double> power(5, 0);
      double total = 0;
      for (index_t j = 0; j <= i; ++j)
        total += power[static_cast<std::size_t>(j)] = std::exp(in[0].at({b, h, i, j}) + in[1].at({h, i - j}));
      for (const double each : power) y.push_back(each / total);
    }
    return Tensor::of(y, in[0].shape(), DType::f64);
  }
};

const Checked<Softmax> checked;
const Checked<CausalSoftmaxByDistance> checked_by_distance;

}  // namespace

Tensor softmax(const Tensor& x, const Tensor& mask, Site at) { return apply(Softmax{}, at, x, mask); }

Tensor causal_softmax(const Tensor& x, index_t first_row, Site at) {
  const CallSite place(at);
  if (x.rank() < 2) fail("causal_softmax", "x is ", x.shape(), "; [..., i, j] required");
  if (first_row < 0) fail("causal_softmax", "first_row is ", first_row, "; 0 or more required");
  return apply(Softmax{first_row}, at, x, Tensor());
}

Tensor causal_softmax_by_distance(
    const Tensor& x, const Tensor& table, const Steps& steps, index_t first_row, Site at) {
  return apply(CausalSoftmaxByDistance{steps, first_row}, at, x, table);
}

}  // namespace whence

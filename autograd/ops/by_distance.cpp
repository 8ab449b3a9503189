// A table read by all pairs of queries and keys.    table:[h n]  ->  y[b, h, i, j] = table[h, steps(b, i, j) - lowest]
//   dtable[h, m] = the sum of dy[., h, i, j] over all pairs of that distance
#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "tensor/pairs.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// The adjoint, an op so that it has a gradient too.
struct SumByDistance {
  static constexpr const char* name = "sum_by_distance";
  Steps steps;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& dy) const {
    const Tensor sums = Tensor::like(dy, {dy.size(1), steps.count});
    kernels(dy.device()).sum_by_distance(steps.on(dy.device()), raw::contiguous(dy), sums);
    return sums;
  }
  Grads<1> backward(const Saved&, const Tensor& dz, Needs<1>) const;
  static Samples<SumByDistance> samples();
};

struct ByDistance {
  static constexpr const char* name = "by_distance";
  Steps steps;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& table) const {
    if (table.rank() != 2 || table.size(1) != steps.count)
      fail(name, "table is ", table.shape(), "; [h,", steps.count, "] required, a number for each distance");
    return raw::read_by_distance(steps.on(table.device()), table);
  }
  Grads<1> backward(const Saved&, const Tensor& dy, Needs<1>) const {
    return {apply(SumByDistance{steps}, Site::current(), dy)};
  }
  std::vector<Stop> stops(const Saved&, std::size_t) const { return {Stop::unread}; }

  static Steps steps_of(
      const std::vector<double>& query, const std::vector<double>& key, index_t batch, bool behind_only) {
    const auto row = [batch](const std::vector<double>& x) {
      return Tensor::of(x, {batch, static_cast<index_t>(x.size()) / batch}, DType::i64);
    };
    return Steps::of(row(query), row(key), behind_only);
  }
  static Steps causal() { return steps_of({2, 3, 4}, {0, 1, 2, 3, 4}, 1, true); }
  static Steps both_sides() { return steps_of({0, 1, 2, 3}, {0, 1, 2}, 1, false); }
  static Steps uneven() { return steps_of({0, 2, 3, 0, 1, 1}, {0, 2, 3, 0, 1, 1}, 2, true); }

  static Samples<ByDistance> samples() {
    return {{"causal, behind other tokens", {causal()}, {draw::normal({2, 5})}},
        {"keys on both sides", {both_sides()}, {draw::normal({3, 6})}},
        {"two sequences, uneven", {uneven()}, {draw::normal({2, 4})}},
        {"one pair, one head", {steps_of({7}, {7}, 1, true)}, {draw::normal({1, 1})}},
        {"strided", {causal()}, {raw::transpose(draw::normal({5, 2}))}},
        {"no heads", {causal()}, {draw::normal({0, 5})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {refusal("by_distance: table is [2,4]; [h,5] required, a number for each distance", by_distance,
        draw::zeros(2, 4), causal())};
  }
  static Tensor reference(const std::vector<Tensor>& in) {  // of the first sample
    std::vector<double> y;
    for (index_t h = 0; h < 2; ++h) {
      for (index_t i = 2; i < 5; ++i)
        for (index_t j = 0; j < 5; ++j) y.push_back(in[0].at({h, i < j ? 0 : i - j}));
    }
    return Tensor::of(y, {1, 2, 3, 5}, DType::f64);
  }
};

Grads<1> SumByDistance::backward(const Saved&, const Tensor& dz, Needs<1>) const {
  return {apply(ByDistance{steps}, Site::current(), dz)};
}
Samples<SumByDistance> SumByDistance::samples() {
  return {{"causal, behind other tokens", {ByDistance::causal()}, {draw::normal({1, 2, 3, 5})}},
      {"two sequences, uneven", {ByDistance::uneven()}, {draw::normal({2, 2, 3, 3})}}};
}

const Checked<ByDistance, SumByDistance> checked;

}  // namespace

Tensor by_distance(const Tensor& table, const Steps& steps, Site at) { return apply(ByDistance{steps}, at, table); }

}  // namespace whence

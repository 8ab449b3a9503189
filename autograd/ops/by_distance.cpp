// A table read by all pairs of queries and keys.    table:[h n]  ->  y[b, h, i, j] = table[h, steps(b, i, j) - lowest]
//   dtable[h, m] = the sum of dy[., h, i, j] over all pairs of that distance
#include "autograd/check/checked.h"
#include "autograd/linear_map.h"
#include "autograd/ops.h"
#include "tensor/pairs.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// The adjoint; it is an op so that it has a gradient too.
Tensor sum_by_distance(const Tensor& dy, const Steps& steps) {
  const auto sums = [](const Tensor& from, const Steps& of) {
    const Tensor y = Tensor::like(from, {from.size(1), of.count});
    kernels(from).sum_by_distance(of.on(from.device()), raw::contiguous(from), y);
    return y;
  };
  const auto back = [](const Tensor& dz, const Shape&, const Steps& of) { return by_distance(dz, of); };
  return linear_map("sum_by_distance", Site::current(), dy, sums, back, steps);
}

struct ByDistance {
  static constexpr const char* name = "by_distance";
  Steps steps;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& table) const {
    if (table.rank() != 2 || table.size(1) != steps.count)
      fail(name, "table is ", table.shape(), "; [h,", steps.count, "] required, a number for each distance");
    return raw::read_by_distance(steps.on(table.device()), table);
  }
  Grads<1> backward(const Saved&, const Tensor& dy, Needs<1>) const { return {sum_by_distance(dy, steps)}; }
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
};

const Checked<ByDistance> checked;
const CheckedEntry checked_adjoint(
    {"sum_by_distance", false, [] {
       const auto sample = [](const char* name, const Tensor& dy, const Steps& steps) {
         return CheckedSample{
             name, false, {dy}, [=](const std::vector<Tensor>& in) { return sum_by_distance(in[0], steps); }};
       };
       return std::vector{sample("causal, behind other tokens", draw::normal({1, 2, 3, 5}), ByDistance::causal()),
           sample("two sequences, uneven", draw::normal({2, 2, 3, 3}), ByDistance::uneven())};
     }});

}  // namespace

Tensor by_distance(const Tensor& table, const Steps& steps, Site site) { return apply(ByDistance{steps}, site, table); }

}  // namespace whence

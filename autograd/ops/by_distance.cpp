// A table read by all pairs of queries and keys.    table:[h n]  ->  y[b, h, i, j] = table[h, steps(b, i, j) - lowest]
//   dtable[h, m] = the sum of dy[., h, i, j] over all pairs of that distance
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
  struct Saved {
    SavedTensor query, key;
  };
  Tensor forward(Saved& saved, const Tensor& table) const {
    saved.query = steps.query, saved.key = steps.key;
    if (table.rank() != 2 || table.size(1) != steps.count)
      fail(name, "table is ", table.shape(), "; [h,", steps.count, "] required, a number for each distance");
    return raw::read_by_distance(steps.on(table.device()), table);
  }
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const {
    (void)saved.query.get(), (void)saved.key.get();  // throw if overwritten
    return {sum_by_distance(dy, steps)};
  }
  std::vector<Stop> stops(const Saved&, std::size_t) const { return {Stop::unread}; }
};

}  // namespace

Tensor by_distance(const Tensor& table, const Steps& steps, Site site) { return apply(ByDistance{steps}, site, table); }

}  // namespace whence

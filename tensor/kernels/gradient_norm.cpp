// The sum of squares of all gradients.
#include <vector>

#include "tensor/kernels.h"
#include "tensor/kernels/rows.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

// Returns sum (x / unit)^2, from partial sums over fixed chunks.
template <class T> double squares_of(const Tensor& x, double unit) {
  constexpr index_t grain = 1 << 14;
  const T* in = x.data<T>();
  std::vector<double> partial(static_cast<std::size_t>((x.numel() + grain - 1) / grain));
  parallel_for(x.numel(), grain, [&](index_t begin, index_t end) {
    const T* const part = in + begin;
    partial[static_cast<std::size_t>(begin / grain)] = sum_of<double>(end - begin, [part, unit](index_t i) {
      const double value = static_cast<double>(static_cast<compute_t<T>>(part[i])) / unit;
      return value * value;
    });
  });
  double total = 0;
  for (const double sum : partial) total += sum;
  return total;
}

}  // namespace

void Kernels::sum_of_squares(std::span<const Tensor> x, double unit, const Tensor& total) {
  double sum = 0;
  for (const Tensor& each : x)
    sum += visit_real("sum_of_squares", each.dtype(), [&]<class T>(Type<T>) { return squares_of<T>(each, unit); });
  *total.data<double>() = sum;
}

}  // namespace whence

// The sum of squares of all gradients, and what clipping makes of it.
#include <cmath>
#include <vector>

#include "tensor/adam.h"
#include "tensor/cpu/kernels.h"
#include "tensor/cpu/rows.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

// sum (x / unit)^2, in partial sums over fixed chunks.
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

void CpuKernels::sum_of_squares(std::span<const Tensor> x, double unit, const Tensor& total) {
  double sum = 0;
  for (const Tensor& each : x) {
    sum += visit_floating("sum_of_squares", each.dtype(), [&]<class T>(Type<T>) -> double {
      if constexpr (std::is_same_v<T, Dual>)
        wrong_dtype("sum_of_squares", DType::dual, "f16, bf16, f32 or f64");
      else
        return squares_of<T>(each, unit);
    });
  }
  *total.data<double>() = sum;
}

void CpuKernels::clip_scale(const Tensor& total, const Tensor& controls) {
  clip_to_norm(std::sqrt(*total.data<double>()), controls.data<double>());
}

}  // namespace whence

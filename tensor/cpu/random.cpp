// Random numbers: element i takes draw i of the stream, four or two draws from one call of the generator.
#include <algorithm>
#include <cmath>

#include "tensor/cpu/block.h"
#include "tensor/cpu/kernels.h"
#include "tensor/parallel.h"
#include "tensor/random.h"

namespace whence {
namespace {

// f(i, draws) for every multiple i of `per_call`; chunks begin at such multiples.
template <class F> void for_calls(index_t count, index_t per_call, const F& f) {
  static_assert(cpu_grain % 4 == 0);
  parallel_for(count, cpu_grain / 4, [&](index_t begin, index_t end) {
    for (index_t i = begin; i < end; i += per_call) f(i, std::min(per_call, end - i));
  });
}

// Stream::uniform(i) for i .. i + 3.
void uniform_draws(const Stream& stream, index_t i, double* draw) {
  const auto words = philox(stream.key, static_cast<std::uint64_t>(i) / 4, stream.step);
  for (std::size_t k = 0; k < 4; ++k) draw[k] = static_cast<double>(static_cast<float>(words[k] >> 8) * 0x1p-24f);
}

// Stream::normal(i) and Stream::normal(i + 1), i even: the two coordinates of one point.
void normal_draws(const Stream& stream, index_t i, double* draw) {
  const auto words = philox(stream.key, static_cast<std::uint64_t>(i) / 2, stream.step);
  const double u1 = (static_cast<double>(words[0]) + 0.5) * 0x1p-32,
               u2 = (static_cast<double>(words[1]) + 0.5) * 0x1p-32;
  const double radius = std::sqrt(-2.0 * std::log(u1)), angle = 6.283185307179586477 * u2;
  draw[0] = radius * std::cos(angle);
  draw[1] = radius * std::sin(angle);
}

}  // namespace

void CpuKernels::random_uniform(const Tensor& out, const Stream& stream, double low, double high) {
  visit_floating("uniform", out.dtype(), [&]<class T>(Type<T>) {
    T* to = out.data<T>();
    constexpr bool is_double = std::is_same_v<T, double>;
    for_calls(out.numel(), is_double ? 1 : 4, [&](index_t i, index_t count) {
      double draw[4] = {};
      if constexpr (is_double)
        draw[0] = stream.uniform53(static_cast<std::uint64_t>(i));
      else
        uniform_draws(stream, i, draw);
      for (index_t k = 0; k < count; ++k) to[i + k] = convert<T>(low + (high - low) * draw[k]);
    });
  });
}

void CpuKernels::random_normal(const Tensor& out, const Stream& stream, double mean, double deviation) {
  visit_floating("normal", out.dtype(), [&]<class T>(Type<T>) {
    T* to = out.data<T>();
    for_calls(out.numel(), 2, [&](index_t i, index_t count) {
      double draw[2];
      normal_draws(stream, i, draw);
      for (index_t k = 0; k < count; ++k) to[i + k] = convert<T>(mean + deviation * draw[k]);
    });
  });
}

}  // namespace whence

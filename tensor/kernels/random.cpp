// Random numbers, four or two draws from one call of the generator.
#include <algorithm>
#include <array>

#include "tensor/convert.h"
#include "tensor/kernels.h"
#include "tensor/parallel.h"
#include "tensor/random.h"

namespace whence {
namespace {

// out[i] = number(draws(n)[k]), i = per_call n + k: element i uses draw i.
template <class T, std::size_t per_call, class Draws, class Number>
void fill_with(const Tensor& out, const Draws& draws, const Number& number) {
  static_assert(cpu_grain / 4 % per_call == 0);  // chunks begin with a new call
  T* to = out.data<T>();
  parallel_for(out.numel(), cpu_grain / 4, [&](index_t begin, index_t end) {
    for (index_t i = begin; i < end;) {
      const std::array<double, per_call> draw = draws(static_cast<std::uint64_t>(i) / per_call);
      for (std::size_t k = 0; k < per_call && i < end; ++k, ++i) to[i] = number(draw[k]);
    }
  });
}

}  // namespace

void Kernels::random_uniform(const Tensor& out, const Stream& stream, double low, double high) {
  visit_floating("uniform", out.dtype(), [&]<class T>(Type<T>) {
    const auto number = [=](double draw) {
      return uniform_between<std::conditional_t<std::is_same_v<T, Dual>, double, T>>(low, high, draw);
    };
    const auto four = [&](std::uint64_t n) {
      std::array<double, 4> draws;
      std::ranges::transform(philox(stream.key, n, stream.step), draws.begin(), Stream::uniform_of);
      return draws;
    };
    if constexpr (std::is_same_v<T, double>)
      fill_with<T, 1>(
          out, [&](std::uint64_t n) { return std::array{stream.uniform53(n)}; }, number);
    else
      fill_with<T, 4>(out, four, number);
  });
}

void Kernels::random_normal(const Tensor& out, const Stream& stream, double mean, double deviation) {
  visit_floating("normal", out.dtype(), [&]<class T>(Type<T>) {
    fill_with<T, 2>(
        out, [&](std::uint64_t n) { return stream.two_normals(n); },
        [=](double draw) { return convert<T>(mean + deviation * draw); });
  });
}

}  // namespace whence

// A number is infinite or NaN when all bits of its exponent are set. One added to a full exponent carries into the
// sign, whose own bit was cleared: the signs of all sums together are the answer, in whole numbers, which vectorise.
#include "tensor/finite.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/raw.h"
#include "tensor/strided_loop.h"

namespace whence {
namespace {

constexpr index_t grain = index_t(1) << 15;

template <class T> struct BitsOf;
template <> struct BitsOf<Float16> {
  using Word = std::uint16_t;
  static constexpr Word exponent_step = 0x0400;
};
template <> struct BitsOf<BFloat16> {
  using Word = std::uint16_t;
  static constexpr Word exponent_step = 0x0080;
};
template <> struct BitsOf<float> {
  using Word = std::uint32_t;
  static constexpr Word exponent_step = 0x00800000;
};
template <> struct BitsOf<double> {
  using Word = std::uint64_t;
  static constexpr Word exponent_step = 0x0010000000000000;
};

template <class T> typename BitsOf<T>::Word sign_if_not_finite(const T* x, index_t stride, index_t count) {
  using Word = typename BitsOf<T>::Word;
  constexpr Word magnitude = static_cast<Word>(~Word(0)) >> 1;
  Word found = 0;
  const auto look = [&](const T* at) {
    Word bits;
    std::memcpy(&bits, at, sizeof bits);
    found = static_cast<Word>(found | static_cast<Word>((bits & magnitude) + BitsOf<T>::exponent_step));
  };
  if (stride == 1)
    for (index_t i = 0; i < count; ++i) look(x + i);
  else
    for (index_t i = 0; i < count; ++i) look(x + i * stride);
  return static_cast<Word>(found & static_cast<Word>(~magnitude));
}

// The same elements with the axes in the order in which they lie in memory: heads seen through a view are one run.
Tensor as_it_lies(const Tensor& x) {
  std::vector<int> axes(static_cast<std::size_t>(x.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  std::ranges::stable_sort(axes, [&](int a, int b) { return x.strides()[a] > x.strides()[b]; });
  return raw::permute(x, axes);
}

template <class T> bool all_finite_of(const T* data, const Tensor& x, index_t each) {
  const StridedLoop<1> walk(x.shape(), {x.strides()});
  const index_t step = walk.inner_stride(0);
  std::atomic<bool> finite{true};
  walk.parallel_run(grain, [&](const std::array<index_t, 1>& at, index_t count) {
    const T* const from = data + at[0] * each;
    bool bad = false;
    if (each == 1 || step == 1)
      bad = sign_if_not_finite(from, step, count * each) != 0;
    else
      for (index_t part = 0; part < each; ++part) bad = bad || sign_if_not_finite(from + part, step * each, count) != 0;
    if (bad) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

}  // namespace

bool all_finite(const Tensor& x) {
  const Tensor y = as_it_lies(x);
  return visit_floating("all_finite", y.dtype(), [&]<class T>(Type<T>) {
    if constexpr (std::is_same_v<T, Dual>)  // a value and a tangent
      return all_finite_of(reinterpret_cast<const double*>(y.bytes()), y, 2);
    else
      return all_finite_of(y.data<T>(), y, 1);
  });
}

}  // namespace whence

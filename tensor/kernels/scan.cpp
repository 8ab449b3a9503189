// Running sums along rows, one register at a time: a prefix sum inside the register in log2 steps, then the carry of
// all registers before it. A plain loop would wait for one addition per element.
#include <cstring>
#include <utility>

#include "tensor/kernels/each_row.h"

namespace whence {
namespace {

#if defined(__AVX512F__)
constexpr int register_bytes = 64;
#elif defined(__AVX__)
constexpr int register_bytes = 32;
#else
constexpr int register_bytes = 16;
#endif

template <class C> struct Register {
  static constexpr int lanes = register_bytes / static_cast<int>(sizeof(C));
  typedef C Vector __attribute__((vector_size(register_bytes)));
};

// Returns v moved by `distance` lanes towards the end (forward) or the beginning (reverse); freed lanes are zero.
template <class C, bool reverse, int distance, std::size_t... lane>
inline typename Register<C>::Vector moved(typename Register<C>::Vector v, std::index_sequence<lane...>) {
  constexpr int n = Register<C>::lanes;
  const typename Register<C>::Vector zero = {};
  return __builtin_shufflevector(v, zero,
      (reverse ? static_cast<int>(lane) + distance
               : (static_cast<int>(lane) >= distance ? static_cast<int>(lane) - distance : n))...);
}

// Copies the lane that holds the total into every lane.
template <class C, bool reverse, std::size_t... lane>
inline typename Register<C>::Vector last(typename Register<C>::Vector v, std::index_sequence<lane...>) {
  return __builtin_shufflevector(v, v, (static_cast<int>(lane) * 0 + (reverse ? 0 : Register<C>::lanes - 1))...);
}

// After steps of 1, 2, 4, ... lane i holds the sum of all lanes up to it.
template <class C, bool reverse> inline typename Register<C>::Vector scan_register(typename Register<C>::Vector v) {
  constexpr std::make_index_sequence<static_cast<std::size_t>(Register<C>::lanes)> lanes;
  v += moved<C, reverse, 1>(v, lanes);
  if constexpr (Register<C>::lanes > 2) v += moved<C, reverse, 2>(v, lanes);
  if constexpr (Register<C>::lanes > 4) v += moved<C, reverse, 4>(v, lanes);
  if constexpr (Register<C>::lanes > 8) v += moved<C, reverse, 8>(v, lanes);
  return v;
}

// One row, register by register from its beginning, or in reverse from its end.
template <class C, bool reverse> void scan_row(const C* x, C* y, index_t width) {
  constexpr index_t n = Register<C>::lanes;
  constexpr std::make_index_sequence<static_cast<std::size_t>(n)> lanes;
  typename Register<C>::Vector carry = {};
  const index_t whole = width / n * n;
  // The last, partial register is padded with zeros; in reverse it comes first.
  const auto ragged = [&] {
    typename Register<C>::Vector v = {};
    std::memcpy(&v, x + whole, static_cast<std::size_t>(width - whole) * sizeof(C));
    v = scan_register<C, reverse>(v) + carry;
    std::memcpy(y + whole, &v, static_cast<std::size_t>(width - whole) * sizeof(C));
    carry = last<C, reverse>(v, lanes);
  };
  if (reverse && whole < width) ragged();
  for (index_t step = 0; step < whole; step += n) {
    const index_t at = reverse ? whole - n - step : step;
    typename Register<C>::Vector v;
    std::memcpy(&v, x + at, sizeof v);
    const typename Register<C>::Vector sums = scan_register<C, reverse>(v);
    v = sums + carry;
    std::memcpy(y + at, &v, sizeof v);
    carry += last<C, reverse>(sums, lanes);  // not from v: the dependency between registers is this one addition
  }
  if (!reverse && whole < width) ragged();
}

template <class C> void scan_row(const C* x, C* y, index_t width, bool reverse) {
  reverse ? scan_row<C, true>(x, y, width) : scan_row<C, false>(x, y, width);
}

// The rows from the last to the first: when each is read from its end, memory is read in one direction, and prefetched.
Tensor flipped(const Tensor& x) {
  Strides strides = x.strides();
  index_t first = 0;
  for (int axis = 0; axis + 1 < x.rank(); ++axis)
    first += (x.size(axis) - 1) * strides[axis], strides[axis] = -strides[axis];
  return x.view(x.shape(), strides, first);
}

}  // namespace

// y_j = sum_{l<=j} x_l, or sum_{l>=j} x_l when reverse
void Kernels::cumulative_sum(const Tensor& x, bool reverse, const Tensor& y) {
  if (x.numel() == 0) return;
  visit_floating("cumulative_sum", x.dtype(), y.dtype(), [&]<class From, class To>(Type<From>, Type<To>) {
    using C = compute_t<From>;
    const bool flips = reverse && x.numel() > 4 * cpu_grain;
    const Tensor in = flips ? flipped(x) : x, out = flips ? flipped(y) : y;
    Operands(Out<To>(out), In<From>(in)).each_row([=](auto to, auto from) {
      if constexpr (!std::is_same_v<C, Dual>) return scan_row<C>(from.first, to.first, to.size(), reverse);
      C total = C(0);
      for (index_t j = 0, n = to.size(); j < n; ++j) {
        const index_t at = reverse ? n - 1 - j : j;
        to[at] = total += from[at];
      }
    });
  });
}

}  // namespace whence

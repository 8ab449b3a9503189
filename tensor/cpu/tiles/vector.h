// Vector code through one wrapper: AVX-512, AVX2 and plain C++ are the same source, compiled three times with
// WHENCE_TILES_TARGET (a namespace) and WHENCE_TILES_BYTES (the width of a vector) defined. Inline functions of shared
// headers must not be called here: the linker keeps one copy, perhaps the one for the newest machine.
#pragma once

#include <cstdint>
#include <utility>

#ifdef __AVX2__
#include <immintrin.h>
#endif
#ifdef WHENCE_TILES_DUAL
#include <cmath>

#include "tensor/dual.h"
#endif

#include "tensor/cpu/tiles/problem.h"
#include "tensor/exponential.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

// `lanes` contiguous numbers. A type without vectors is its own vector of one.
template <class T> struct VectorOf {
  using type = T;
  using mask = bool;
  static constexpr extent lanes = 1;
};
template <> struct VectorOf<float> {
  typedef float type __attribute__((vector_size(WHENCE_TILES_BYTES)));
  typedef float unaligned __attribute__((vector_size(WHENCE_TILES_BYTES), aligned(4), may_alias));
  typedef std::int32_t mask __attribute__((vector_size(WHENCE_TILES_BYTES)));
  static constexpr extent lanes = WHENCE_TILES_BYTES / 4;
};
template <> struct VectorOf<double> {
  typedef double type __attribute__((vector_size(WHENCE_TILES_BYTES)));
  typedef double unaligned __attribute__((vector_size(WHENCE_TILES_BYTES), aligned(8), may_alias));
  typedef std::int64_t mask __attribute__((vector_size(WHENCE_TILES_BYTES)));
  static constexpr extent lanes = WHENCE_TILES_BYTES / 8;
};

template <class T> using Vector = typename VectorOf<T>::type;
template <class T> using Mask = typename VectorOf<T>::mask;
template <class T> inline constexpr extent lanes = VectorOf<T>::lanes;
template <class T> inline constexpr bool has_vectors = lanes<T> > 1;
template <class T> using LaneNumbers = std::make_integer_sequence<int, static_cast<int>(lanes<T>)>;

static inline extent min(extent a, extent b) { return a < b ? a : b; }
static inline extent max(extent a, extent b) { return a > b ? a : b; }
template <class T> static inline extent padded(extent count) { return (count + lanes<T> - 1) / lanes<T> * lanes<T>; }

template <class T> static inline Vector<T> load(const T* from) {
  if constexpr (has_vectors<T>)
    return *reinterpret_cast<const typename VectorOf<T>::unaligned*>(from);
  else
    return *from;
}
template <class T> static inline void store(T* to, Vector<T> x) {
  if constexpr (has_vectors<T>)
    *reinterpret_cast<typename VectorOf<T>::unaligned*>(to) = x;
  else
    *to = x;
}
template <class T> static inline Vector<T> splat(T x) {
  if constexpr (has_vectors<T>)
    return x - Vector<T>{};
  else
    return x;
}
template <class T> static inline Vector<T> zero() { return Vector<T>{}; }
template <class T> static inline Vector<T> larger(Vector<T> a, Vector<T> b) { return a > b ? a : b; }
template <class T> static inline Vector<T> smaller(Vector<T> a, Vector<T> b) { return a < b ? a : b; }

// Returns 0, 1, 2, ... as numbers.
template <class T> static inline Vector<T> count_up() {
  if constexpr (has_vectors<T>) {
    Vector<T> x{};
    for (extent n = 0; n < lanes<T>; ++n) x[n] = static_cast<T>(n);
    return x;
  } else {
    return T(0);
  }
}

// Returns one bit for each lane whose mask is set.
template <class T> static inline unsigned bits(Mask<T> mask) {
  if constexpr (!has_vectors<T>) {
    return mask ? 1u : 0u;
  } else {
#if defined(__AVX512F__) && WHENCE_TILES_BYTES == 64
    if constexpr (sizeof(T) == 4) return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask));
    if constexpr (sizeof(T) == 8) return _mm512_movepi64_mask(reinterpret_cast<__m512i>(mask));
#elif defined(__AVX2__) && WHENCE_TILES_BYTES == 32
    if constexpr (sizeof(T) == 4) return static_cast<unsigned>(_mm256_movemask_ps(reinterpret_cast<__m256>(mask)));
    if constexpr (sizeof(T) == 8) return static_cast<unsigned>(_mm256_movemask_pd(reinterpret_cast<__m256d>(mask)));
#endif
    unsigned found = 0;
    for (extent n = 0; n < lanes<T>; ++n) found |= (mask[n] ? 1u : 0u) << n;
    return found;
  }
}

// Converts whole numbers to indices, one for each lane; look_up returns base[index].
template <class T> static inline Mask<T> indices(Vector<T> whole) { return __builtin_convertvector(whole, Mask<T>); }
template <class T> static inline Vector<T> look_up(const T* base, Mask<T> index) {
#if defined(__AVX512F__) && WHENCE_TILES_BYTES == 64
  if constexpr (sizeof(T) == 4)
    return reinterpret_cast<Vector<T>>(_mm512_i32gather_ps(reinterpret_cast<__m512i>(index), base, 4));
  else
    return reinterpret_cast<Vector<T>>(_mm512_i64gather_pd(reinterpret_cast<__m512i>(index), base, 8));
#else
  Vector<T> x{};
  for (extent n = 0; n < lanes<T>; ++n) x[n] = base[index[n]];
  return x;
#endif
}
// base[index] += x for lanes whose bit of `chosen` is set; their indices must differ.
template <class T> static inline void scatter_add(T* base, Mask<T> index, unsigned chosen, Vector<T> x) {
#if defined(__AVX512F__) && WHENCE_TILES_BYTES == 64
  if constexpr (sizeof(T) == 4) {
    const __m512i at = reinterpret_cast<__m512i>(index);
    const auto some = static_cast<__mmask16>(chosen);
    const __m512 before = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), some, at, base, 4);
    _mm512_mask_i32scatter_ps(base, some, at, _mm512_add_ps(before, reinterpret_cast<__m512>(x)), 4);
  } else {
    const __m512i at = reinterpret_cast<__m512i>(index);
    const auto some = static_cast<__mmask8>(chosen);
    const __m512d before = _mm512_mask_i64gather_pd(_mm512_setzero_pd(), some, at, base, 8);
    _mm512_mask_i64scatter_pd(base, some, at, _mm512_add_pd(before, reinterpret_cast<__m512d>(x)), 8);
  }
#else
  for (extent n = 0; n < lanes<T>; ++n)
    if (chosen >> n & 1u) base[index[n]] += x[n];
#endif
}

// Adds the upper half of the lanes to the lower, until one is left.
template <class T, int half = static_cast<int>(lanes<T> / 2)> static inline T sum_of_lanes(Vector<T> x) {
  if constexpr (!has_vectors<T>) {
    return x;
  } else if constexpr (half == 0) {
    return x[0];
  } else {
    const auto moved = [x]<int... lane>(std::integer_sequence<int, lane...>) {
      return __builtin_shufflevector(x, x, (lane ^ half)...);
    };
    return sum_of_lanes<T, half / 2>(x + moved(LaneNumbers<T>{}));
  }
}

// e^x as in tensor/math.h, except that below -60 (f32) or -708 (f64) the result is 0: such a term is negligible next to
// 1, the largest of a softmax and the other summand of a sigmoid. In f32 products with gradients would be subnormal,
// which is slow on x86; ALiBi's distant keys have many. NaN stays NaN.
template <class T> static inline Vector<T> exponential(Vector<T> x) {
  using Of = ExponentialOf<T>;
  constexpr T lowest = sizeof(T) == 4 ? -60 : -708, highest = sizeof(T) == 4 ? 88 : 709;
  using V = Vector<T>;
  using I = Mask<T>;
  const V bounded = x > splat(highest) ? splat(highest) : x;
  const V shifted = bounded * splat(T(1.44269504088896340736)) + splat(Of::magic), n = shifted - splat(Of::magic);
  const V r = (bounded - n * splat(Of::ln2_high)) - n * splat(Of::ln2_low);
  V p = splat(Of::leading);
#pragma GCC unroll 16
  for (const T factor : Of::polynomial) p = p * r + splat(factor);
  const V mantissa = p * (r * r) + r + splat(T(1));
  const I power = (reinterpret_cast<I>(shifted) - Of::magic_bits + Of::bias) << Of::fraction_bits;
  const V y = mantissa * reinterpret_cast<V>(power);
  return x < splat(lowest) ? V{} : y;
}

#ifdef WHENCE_TILES_DUAL
template <> [[maybe_unused]] inline Dual exponential<Dual>(Dual x) { return whence::exp(x); }
#endif

// 1 / (1 + e^-x)
template <class T> static inline Vector<T> sigmoid(Vector<T> x) {
  return splat(T(1)) / (splat(T(1)) + exponential<T>(-x));
}
#ifdef WHENCE_TILES_DUAL
template <> inline Dual sigmoid<Dual>(Dual x) {
  const double y = 1 / (1 + std::exp(-x.value));
  return {y, y * (1 - y) * x.tangent};
}
#endif

// The largest whole number <= x, for 0 <= x < 2^22.
template <class T> static inline Vector<T> whole_part(Vector<T> x) {
  if constexpr (has_vectors<T>) {
    const Vector<T> magic = splat(sizeof(T) == 4 ? T(8388608.0) : T(4503599627370496.0));  // 2^23, 2^52
    const Vector<T> nearest = (x + magic) - magic;
    return nearest > x ? nearest - splat(T(1)) : nearest;
  } else {
    return T(static_cast<double>(static_cast<extent>(static_cast<double>(x))));
  }
}

// ---- Transposes a square of numbers in registers: as many vectors as a vector has lanes.

// Swaps the upper right with the lower left square, of side `half`, in every square of twice that side.
template <int half, class V, int... lane>
__attribute__((always_inline)) static inline void swap_squares(
    V& above, V& below, std::integer_sequence<int, lane...>) {
  constexpr int count = sizeof...(lane);
  const V first = __builtin_shufflevector(above, below, ((lane & half) ? lane - half + count : lane)...);
  below = __builtin_shufflevector(above, below, ((lane & half) ? lane + count : lane + half)...);
  above = first;
}
template <class T, int half = static_cast<int>(lanes<T> / 2)>
__attribute__((always_inline)) static inline void transpose(Vector<T>* rows) {
  if constexpr (half > 0) {
#pragma GCC unroll 16
    for (int row = 0; row < lanes<T>; ++row)
      if (!(row & half)) swap_squares<half>(rows[row], rows[row + half], LaneNumbers<T>{});
    transpose<T, half / 2>(rows);
  }
}

}  // namespace whence::tiles::WHENCE_TILES_TARGET

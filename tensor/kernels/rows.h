// Numbers of a row: blocks of them between a tensor's dtype and the type of the arithmetic, and their sum and maximum.
// A block is on the stack and in the first-level cache, so a kernel for contiguous compute types serves every stride and
// every dtype.
#pragma once

#include <bit>
#include <cstring>

#include "tensor/convert.h"
#include "tensor/dtype.h"
#include "tensor/math.h"
#include "tensor/shape.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace whence {

inline constexpr index_t block_length = 256;

inline void widen(const Float16* from, index_t count, float* to) {
  index_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= count; i += 8) {
    __m128i bits;
    std::memcpy(&bits, from + i, sizeof bits);
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(bits));
  }
#endif
  for (; i < count; ++i) to[i] = from[i];
}

inline void narrow(const float* from, index_t count, Float16* to) {
  index_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= count; i += 8) {
    const __m128i bits = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    std::memcpy(static_cast<void*>(to + i), &bits, sizeof bits);
  }
#endif
  for (; i < count; ++i) to[i] = from[i];
}

template <std::size_t bytes>
using bits_t = std::conditional_t<bytes == 1, std::uint8_t,
    std::conditional_t<bytes == 2, std::uint16_t, std::conditional_t<bytes == 4, std::uint32_t, std::uint64_t>>>;

// Returns keep ? value : otherwise for keep 0 or 1, without a branch. Compilers turn the plain form, or one with a
// bool, into conditional loads, and then do not vectorise the loop.
template <class T> inline T choose(unsigned char keep, T value, T otherwise) {
  if constexpr (sizeof(T) > 8) {
    return keep ? value : otherwise;
  } else {
    using U = bits_t<sizeof(T)>;
    const U mask = static_cast<U>(U{0} - static_cast<U>(keep));
    return std::bit_cast<T>(
        static_cast<U>((std::bit_cast<U>(value) & mask) | (std::bit_cast<U>(otherwise) & static_cast<U>(~mask))));
  }
}

// Copies `count` numbers at `stride` into a contiguous block, and back.
template <class T, class C> inline void load_block(const T* from, index_t stride, index_t count, C* to) {
  if (stride != 1)
    for (index_t i = 0; i < count; ++i) to[i] = convert<C>(static_cast<compute_t<T>>(from[i * stride]));
  else if constexpr (std::is_same_v<T, C>)
    std::memcpy(static_cast<void*>(to), from, static_cast<std::size_t>(count) * sizeof(T));
  else if constexpr (std::is_same_v<T, Float16> && std::is_same_v<C, float>)
    widen(from, count, to);
  else
    for (index_t i = 0; i < count; ++i) to[i] = convert<C>(static_cast<compute_t<T>>(from[i]));
}

template <class C, class T> inline void store_block(const C* from, index_t count, T* to, index_t stride) {
  if (stride != 1)
    for (index_t i = 0; i < count; ++i) to[i * stride] = convert<T>(from[i]);
  else if constexpr (std::is_same_v<T, C>)
    std::memcpy(static_cast<void*>(to), from, static_cast<std::size_t>(count) * sizeof(T));
  else if constexpr (std::is_same_v<T, Float16> && std::is_same_v<C, float>)
    narrow(from, count, to);
  else
    for (index_t i = 0; i < count; ++i) to[i] = convert<T>(from[i]);
}

// A row of T as its compute type: the row itself if the types are equal, else a widened copy in `buffer`.
template <class T, class C> inline const C* row_as(const T* row, index_t count, C* buffer) {
  if constexpr (std::is_same_v<T, C>) {
    return row;
  } else {
    load_block(row, 1, count, buffer);
    return buffer;
  }
}

// ---- Sums and maxima over a contiguous row, for reductions, softmax and norms. Each keeps several running values, so
// that additions overlap. The length alone decides how elements are grouped.

template <class T>
inline constexpr int lane_count = 64 / static_cast<int>(sizeof(T));  // one register of the widest kind

// Returns the sum over i of term(i): lane_count running sums of T, combined pairwise.
template <class T, class Term> inline T sum_of(index_t count, const Term& term) {
  constexpr int lanes = 4 * lane_count<T>;
  T partial[lanes] = {};
  index_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int lane = 0; lane < lanes; ++lane) partial[lane] += term(i + lane);
  for (int lane = 0; i < count; ++i, ++lane) partial[lane] += term(i);
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane) partial[lane] += partial[lane + width];
  return partial[0];
}

using math::larger;

// Returns the largest number of a row, as C.
template <class C, class T> inline C maximum_of(const T* x, index_t count) {
  constexpr int lanes = 2 * lane_count<C>;
  if (count < lanes) {
    C best = C(x[0]);
    for (index_t i = 1; i < count; ++i) best = larger(best, C(x[i]));
    return best;
  }
  C partial[lanes];
  for (int lane = 0; lane < lanes; ++lane) partial[lane] = C(x[lane]);
  index_t i = lanes;
  for (; i + lanes <= count; i += lanes)
    for (int lane = 0; lane < lanes; ++lane) partial[lane] = larger(partial[lane], C(x[i + lane]));
  for (; i < count; ++i) partial[0] = larger(partial[0], C(x[i]));
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane) partial[lane] = larger(partial[lane], partial[lane + width]);
  return partial[0];
}

}  // namespace whence

// One tile of a matrix product on one thread, for processors with AVX-512 (tensor/cpu/instruction_set.h tells if this
// is one). Other processors use BLAS, and so do products too thin for tiles. OpenBLAS of this age does not recognise
// new processors, and copies operands that could be read in place: on an EPYC with AVX-512, OpenBLAS 0.3.21 that is
// told its processor (OPENBLAS_CORETYPE=SkylakeX) reaches 92 % of these tiles in steps of GPT-2 124M and 94 % in
// flip-flop.
#pragma once

#include <cstdint>

namespace whence::products {

#ifdef __x86_64__
inline constexpr bool compiled = true;
#else
inline constexpr bool compiled = false;  // the rest is only declared
#endif

// `along` is the stride along the inner axis, `across` between rows of a or columns of b. One of them is 1.
template <class T> struct Factor {
  const T* at;
  std::int64_t across, along;
};

// to[rows, columns] = bias + alpha a b. bias: one number per column, or null.
template <class T> struct Tile {
  Factor<T> a, b;
  std::int64_t rows, columns, depth;
  T alpha;
  const T* bias;
  T* to;
  std::int64_t leading;  // between rows of `to`
};

// `scratch`: scratch_size<T>(columns) numbers, aligned to 64 bytes.
template <class T> std::int64_t scratch_size(std::int64_t columns);
template <class T> void multiply(const Tile<T>& tile, T* scratch);

}  // namespace whence::products

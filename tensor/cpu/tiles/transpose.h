// Transposes a square of numbers in registers: as many vectors as a vector has lanes.
#pragma once

#include "tensor/cpu/tiles/vector.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

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

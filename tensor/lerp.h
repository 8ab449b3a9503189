// Interpolation of a table at a real-valued position, the same on every device.  (CoPE's Listing 1)
//   a = floor(p),  c = ceil(p),  w = p - a        p clamped to [0, rows - 1]; NaN counts as row 0
#pragma once

#include "tensor/shape.h"

namespace whence {

template <class C> struct PlaceInTable {
  std::int32_t below;  // a
  C share;             // w, the weight of row c; 0 if p is an integer
  WHENCE_HD PlaceInTable(C position, index_t rows) {
    const C last = C(static_cast<double>(rows - 1)), above_zero = position > C(0) ? position : C(0);
    const C inside = above_zero < last ? above_zero : last;
    below = static_cast<std::int32_t>(inside);
    share = inside > C(below) ? inside - C(below) : C(0);  // for a dual too: no derivative at an integer
  }
  WHENCE_HD std::int32_t above() const { return below + (share > C(0) ? 1 : 0); }  // c
};

}  // namespace whence

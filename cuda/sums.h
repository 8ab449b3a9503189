// What one thread sums a row or a column in.
#pragma once

#include "tensor/dtype.h"

namespace whence {

// Wider than T: a single thread adds one number after the other, and no tree of partial sums keeps the rounding small.
template <class T>
using sum_t = std::conditional_t<std::is_same_v<T, Dual>, Dual, double>;

// The larger of two; NaN if either is.
template <class T>
WHENCE_HD T larger_of(T a, T b) {
  return b > a || !(b == b) ? b : a;
}

}  // namespace whence

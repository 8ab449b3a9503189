// Sums, maxima and exponentials over a contiguous row, for reductions, softmax and norms. Each keeps several running
// values, so that additions overlap. The length alone decides how elements are grouped.
#pragma once

#include "tensor/dtype.h"
#include "tensor/math.h"
#include "tensor/shape.h"

namespace whence {

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

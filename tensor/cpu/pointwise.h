// The inner loops of unary and binary functions on contiguous blocks, one set per compute type:
// pointwise_{f32,f64,dual}.cpp.
#pragma once

#include "tensor/pointwise.h"
#include "tensor/shape.h"

namespace whence {

// C is float, double or Dual. A table of plain loops: looked up once per call, run once per block.
template <class C> struct PointwiseLoops {
  using Value = void (*)(UnaryAttributes p, const C* x, C* y, index_t count);                         // y = f(x)
  using Derivative = void (*)(UnaryAttributes p, const C* saved, const C* dy, C* dx, index_t count);  // dx = dy f'
  using Pair = void (*)(const C* a, index_t a_step, const C* b, index_t b_step, C* y,
      index_t count);  // y = f(a, b); steps are 0 or 1

  static Value value(Unary f);
  static Derivative derivative(Unary f);
  static Derivative second(Unary f);  // dx = dy d(f'(saved))/d(saved)
  static Pair pair(Binary f);
};

}  // namespace whence

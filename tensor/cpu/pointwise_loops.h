// Bodies of PointwiseLoops, included by the three files that instantiate them.
#pragma once

#include "tensor/cpu/pointwise.h"

namespace whence {

template <class C> typename PointwiseLoops<C>::Value PointwiseLoops<C>::value(Unary function) {
  return visit(function, []<class F>(F) -> Value {
    return [](UnaryAttributes p, const C* __restrict x, C* __restrict y, index_t count) {
      for (index_t i = 0; i < count; ++i) y[i] = F::value(x[i], p);
    };
  });
}

template <class C> typename PointwiseLoops<C>::Derivative PointwiseLoops<C>::derivative(Unary function) {
  return visit(function, []<class F>(F) -> Derivative {
    return [](UnaryAttributes p, const C* __restrict saved, const C* __restrict dy, C* __restrict dx, index_t count) {
      for (index_t i = 0; i < count; ++i) dx[i] = dy[i] * F::derivative(saved[i], p);
    };
  });
}

// d f'(v)/dv by a dual number, v being what f' is written in: x or y.
template <class C> typename PointwiseLoops<C>::Derivative PointwiseLoops<C>::second(Unary function) {
  return visit(function, []<class F>(F) -> Derivative {
    return [](UnaryAttributes p, const C* saved, const C* dy, C* dx, index_t count) {
      for (index_t i = 0; i < count; ++i)
        dx[i] = dy[i] * static_cast<C>(F::derivative(Dual{static_cast<double>(saved[i]), 1}, p).tangent);
    };
  });
}

template <class C> typename PointwiseLoops<C>::Pair PointwiseLoops<C>::pair(Binary function) {
  return visit(function, []<class F>(F) -> Pair {
    return [](const C* a, index_t a_step, const C* b, index_t b_step, C* y, index_t count) {
      C* __restrict out = y;
      const C* __restrict left = a, * __restrict right = b;
      if (a == y && a_step == 1 && b_step == 1) {  // in place: one pointer, so that no overlap has to be feared
        for (index_t i = 0; i < count; ++i) out[i] = F::value(out[i], right[i]);
      } else if (a_step == 1 && b_step == 1) {
        for (index_t i = 0; i < count; ++i) out[i] = F::value(left[i], right[i]);
      } else if (a_step == 1) {
        const C constant = *b;
        for (index_t i = 0; i < count; ++i) out[i] = F::value(left[i], constant);
      } else if (b_step == 1) {
        const C constant = *a;
        for (index_t i = 0; i < count; ++i) out[i] = F::value(constant, right[i]);
      } else {
        const C constant = F::value(*a, *b);
        for (index_t i = 0; i < count; ++i) out[i] = constant;
      }
    };
  });
}

}  // namespace whence

// Sums of powers in one pass: sum_l e^(x_l) is e^top times a sum of powers e^(x_l - top). None of them overflows.
#pragma once

#include "cuda/vocabulary/rows.h"
#include "tensor/math.h"

namespace whence::gpu {

// first: the largest so far; second: the sum of e^(x - first).
template <class C> using PowerSum = Pair<Number<C>, Number<C>>;

template <class C> WHENCE_HD PowerSum<C> empty_power_sum() { return {lowest<C>(), Number<C>(C(0))}; }

// e^(x - top). As long as all numbers are -inf, this is e^(-inf) = 0 and not e^(-inf + inf), which is NaN.
template <class C> WHENCE_HD Number<C> power_below(Number<C> x, Number<C> top) {
  return top == lowest<C>() ? Number<C>(C(0)) : Number<C>(math::exp(x - top));
}

template <class C> struct JoinPowerSums {
  WHENCE_HD PowerSum<C> operator()(PowerSum<C> a, PowerSum<C> b) const {
    const Number<C> top = Larger{}(a.first, b.first);
    return {top, a.second * power_below<C>(a.first, top) + b.second * power_below<C>(b.first, top)};
  }
};

// Adds the entries whose bits are set. The old sum is scaled once per pack, not once per entry.
template <class C, int N> WHENCE_HD void add_pack(PowerSum<C>& sum, const Numbers<C, N>& pack, unsigned kept) {
  Number<C> top = sum.first;
  for (int k = 0; k < N; ++k) top = kept >> k & 1u ? Larger{}(top, pack.of[k]) : top;
  Number<C> total = sum.second * power_below<C>(sum.first, top);
  for (int k = 0; k < N; ++k) total = kept >> k & 1u ? total + power_below<C>(pack.of[k], top) : total;
  sum = {top, total};
}

}  // namespace whence::gpu

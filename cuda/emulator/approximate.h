// The twins of the scalar instructions of cuda/vocabulary/tensor_cores.h. A GPU's ex2 and rcp have the errors stated
// there; here they return the nearest number, for doubles too.
#pragma once

#include <cfenv>
#include <cmath>
#include <limits>

#include "cuda/emulator/counted.h"
#include "cuda/vocabulary/fragments.h"

namespace whence::gpu {
namespace emulator {

// .ftz instructions treat subnormal floats as 0, as operands and as results.
template <class C> C flushed(C x) {
  const bool subnormal = sizeof(C) == 4 && std::abs(x) < std::numeric_limits<C>::min();
  return subnormal ? std::copysign(C(0), x) : x;
}

}  // namespace emulator

inline Register<float> to_tf32(Number<float> x) {
  const auto bits = std::bit_cast<std::uint32_t>(x.plain());
  return std::isfinite(x.plain()) ? (bits + 0x1000u) & ~0x1FFFu : bits;
}
inline Number<float> from_tf32(Register<float> x) { return std::bit_cast<float>(x); }

template <class C> Counted<C> ex2_approx(Counted<C> x) {
  return x.special([](C of) { return emulator::flushed(std::exp2(emulator::flushed(of))); });
}
template <class C> Counted<C> rcp_approx(Counted<C> x) {
  return x.special([](C of) { return emulator::flushed(1 / emulator::flushed(of)); });
}
template <class C> Counted<C> min_number(Counted<C> a, Counted<C> b) {
  return a.simple([&](C of) { return std::fmin(of, b.plain()); });
}
template <class C> Counted<C> max_nan(Counted<C> a, Counted<C> b) {
  return a.simple([&](C of) { return math::larger(of, b.plain()); });
}
// Volatile: no part of the sum may move out from between the two rounding modes.
template <class C> Counted<C> add_down(Counted<C> a, Counted<C> b) {
  return a.simple([&](C of) {
    volatile C sum = of;
    std::fesetround(FE_DOWNWARD);
    sum = sum + b.plain();
    std::fesetround(FE_TONEAREST);
    return C(sum);
  });
}

template <class T> Register<T> pack_two(Number<compute_t<T>> low, Number<compute_t<T>> high) {
  static_assert(per_register<T> == 2);
  if constexpr (std::is_same_v<T, double>)
    return {low.plain(), high.plain()};
  else
    return std::uint32_t{T(low.plain()).bits} | std::uint32_t{T(high.plain()).bits} << 16;
}
template <class T> Register<T> pack_within(Number<compute_t<T>> low, Number<compute_t<T>> high) {
  if constexpr (!std::is_same_v<T, Float16>) return pack_two<T>(low, high);
  const auto within = [](Number<compute_t<T>> x) {
    const float of = static_cast<float>(x.plain());
    return Number<compute_t<T>>(of > 65504 ? 65504 : of < -65504 ? -65504 : of);
  };
  return pack_two<T>(within(low), within(high));
}
template <class T> Two<Number<compute_t<T>>> unpack_two(Register<T> of) {
  static_assert(per_register<T> == 2);
  if constexpr (std::is_same_v<T, double>) {
    return {of.low, of.high};
  } else {
    T low, high;
    low.bits = static_cast<std::uint16_t>(of), high.bits = static_cast<std::uint16_t>(of >> 16);
    return {low, high};
  }
}
template <class T, class F> Register<T> by_two(Register<T> a, Register<T> b, const F& f) {
  const auto left = unpack_two<T>(a), right = unpack_two<T>(b);
  return pack_two<T>(f(left.low, right.low), f(left.high, right.high));
}
template <class T> Register<T> times_two(Register<T> a, Register<T> b) { return by_two<T>(a, b, std::multiplies<>{}); }
template <class T> Register<T> max_two(Register<T> a, Register<T> b) {
  return by_two<T>(a, b, [](auto x, auto y) { return max_nan(x, y); });
}
// Bits 15 and 31.
template <class T> std::uint32_t signs_of(Register<T> of) {
  const auto two = unpack_two<T>(of);
  return std::uint32_t{std::signbit(two.low.plain())} << 15 | std::uint32_t{std::signbit(two.high.plain())} << 31;
}
template <class T, class Of> Register<T> where_negative(Register<Of> of, Register<T> yes, Register<T> no) {
  const auto sign = unpack_two<Of>(of);
  const auto one = unpack_two<T>(yes), other = unpack_two<T>(no);
  return pack_two<T>(
      std::signbit(sign.low.plain()) ? one.low : other.low, std::signbit(sign.high.plain()) ? one.high : other.high);
}

}  // namespace whence::gpu

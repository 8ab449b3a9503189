// exp, sigmoid and tanh that a compiler can vectorise in float (no branches, no library call). Double and dual use the
// library's. Errors in float, over the whole range: exp at most 1 unit in the last place, tanh 1.5, sigmoid 2.5; exact
// at 0, at the infinities and for NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "tensor/device.h"
#include "tensor/dual.h"
#include "tensor/exponential.h"

namespace whence::math {

using std::abs, std::ceil, std::cos, std::erf, std::floor, std::isfinite, std::log, std::log1p, std::sin, std::sqrt;
using whence::abs, whence::ceil, whence::cos, whence::erf, whence::floor, whence::isfinite, whence::log, whence::log1p,
    whence::sin, whence::sqrt;

// Returns the larger one; NaN if either is.
template <class T> WHENCE_HD inline T larger(T a, T b) { return b > a || !(b == b) ? b : a; }

WHENCE_HD inline double exp(double x) { return std::exp(x); }
WHENCE_HD inline double tanh(double x) { return std::tanh(x); }
WHENCE_HD inline Dual exp(Dual x) { return whence::exp(x); }
WHENCE_HD inline Dual tanh(Dual x) { return whence::tanh(x); }

// e^x with the constants of tensor/exponential.h; 2^n in two factors, so that subnormals come out right.
WHENCE_HD inline float exp(float x) {
#ifdef __CUDA_ARCH__
  return ::expf(x);
#else
  const float low = -104.0f, high = 89.0f;  // beyond these the result is 0 or infinity for any x
  const float clamped = x < low ? low : (x > high ? high : x);
  using Of = ExponentialOf<float>;
  const float shifted = clamped * 1.44269504088896341f + Of::magic, n = shifted - Of::magic;
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - Of::magic_bits;
  const float r = (clamped - n * Of::ln2_high) - n * Of::ln2_low;
  float p = Of::leading;
  p = p * r + Of::polynomial[0];
  p = p * r + Of::polynomial[1];
  p = p * r + Of::polynomial[2];
  p = p * r + Of::polynomial[3];
  p = p * r + Of::polynomial[4];
  const float mantissa = p * (r * r) + r + 1.0f;
  const std::int32_t half = exponent >> 1, rest = exponent - half;
  const float scale_a = std::bit_cast<float>(static_cast<std::int32_t>(static_cast<std::uint32_t>(half + 127) << 23));
  const float scale_b = std::bit_cast<float>(static_cast<std::int32_t>(static_cast<std::uint32_t>(rest + 127) << 23));
  return mantissa * scale_a * scale_b;
#endif
}

WHENCE_HD inline float tanh(float x) {
#ifdef __CUDA_ARCH__
  return ::tanhf(x);
#else
  const float size = x < 0 ? -x : x,
              z = x * x;  // near 0 the exponential form cancels, so a polynomial in x^2 takes over
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near = p * z * size + size, far = 1.0f - 2.0f / (1.0f + exp(2.0f * size));
  return std::copysign(size < 0.625f ? near : far, x);
#endif
}

// Functions of a number that wraps another, as the emulator's do: each is applied to the wrapped number.
template <class N>
concept WrappedNumber = requires { typename N::plain_number; };
// clang-format off
template <WrappedNumber N> N abs(N x) { return x.simple([](auto v) { return std::abs(v); }); }
template <WrappedNumber N> N ceil(N x) { return x.simple([](auto v) { return std::ceil(v); }); }
template <WrappedNumber N> N floor(N x) { return x.simple([](auto v) { return std::floor(v); }); }
template <WrappedNumber N> bool isfinite(N x) { return x.simple([](auto v) { return std::isfinite(v); }); }
template <WrappedNumber N> N cos(N x) { return x.special([](auto v) { return std::cos(v); }); }
template <WrappedNumber N> N erf(N x) { return x.special([](auto v) { return std::erf(v); }); }
template <WrappedNumber N> N log(N x) { return x.special([](auto v) { return std::log(v); }); }
template <WrappedNumber N> N log1p(N x) { return x.special([](auto v) { return std::log1p(v); }); }
template <WrappedNumber N> N sin(N x) { return x.special([](auto v) { return std::sin(v); }); }
template <WrappedNumber N> N sqrt(N x) { return x.special([](auto v) { return std::sqrt(v); }); }
template <WrappedNumber N> N exp(N x) { return x.special([](auto v) { return math::exp(v); }); }
template <WrappedNumber N> N tanh(N x) { return x.special([](auto v) { return math::tanh(v); }); }
// clang-format on

// 1 / (1 + e^-x); exactly 1 from x = 17.4 on in float, 37 in double.
template <class T> WHENCE_HD inline T sigmoid(T x) {
  return T(1) / (T(1) + math::exp(-x));  // qualified: a Dual would find whence::exp as well
}

// Uses the derivative y (1 - y): through e^-x the tangent would be 0 * inf where e^-x overflows.
WHENCE_HD inline Dual sigmoid(Dual x) {
  const double y = sigmoid(x.value);
  return {y, y * (1 - y) * x.tangent};
}

}  // namespace whence::math

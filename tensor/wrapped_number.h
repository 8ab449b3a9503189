// Functions of a number that wraps another, as the emulator's do: each is applied to the wrapped number.
#pragma once

#include <cmath>

#include "tensor/device.h"

namespace whence::math {

template <class N>
concept WrappedNumber = requires { typename N::plain_number; };

WHENCE_HD inline float exp(float x);  // these four are defined in tensor/math.h
WHENCE_HD inline double exp(double x);
WHENCE_HD inline float tanh(float x);
WHENCE_HD inline double tanh(double x);

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

}  // namespace whence::math

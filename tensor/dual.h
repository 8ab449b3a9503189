// A number with its derivative along one direction: (a + a'e)(b + b'e) = ab + (a'b + ab')e, e*e = 0. As a dtype it runs
// the ordinary forward code and gives J u exactly. Gradient checks compare against J u.
#pragma once

#include <cmath>
#include <cstdint>

#include "tensor/device.h"

namespace whence {

struct Dual {
  double value = 0;
  double tangent = 0;

  constexpr Dual() = default;
  WHENCE_HD constexpr Dual(double v) : value(v) {}
  WHENCE_HD constexpr Dual(double v, double t) : value(v), tangent(t) {}
  WHENCE_HD explicit constexpr operator double() const { return value; }
  WHENCE_HD explicit constexpr operator float() const { return static_cast<float>(value); }
  WHENCE_HD explicit constexpr operator std::int64_t() const { return static_cast<std::int64_t>(value); }
  WHENCE_HD explicit constexpr operator std::int32_t() const { return static_cast<std::int32_t>(value); }
  WHENCE_HD explicit constexpr operator bool() const { return value != 0; }

  WHENCE_HD constexpr Dual& operator+=(Dual b) { return *this = *this + b; }
  WHENCE_HD constexpr Dual& operator-=(Dual b) { return *this = *this - b; }
  WHENCE_HD constexpr Dual& operator*=(Dual b) { return *this = *this * b; }
  WHENCE_HD constexpr Dual& operator/=(Dual b) { return *this = *this / b; }
  WHENCE_HD friend constexpr Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.tangent + b.tangent}; }
  WHENCE_HD friend constexpr Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.tangent - b.tangent}; }
  WHENCE_HD friend constexpr Dual operator-(Dual a) { return {-a.value, -a.tangent}; }
  WHENCE_HD friend constexpr Dual operator*(Dual a, Dual b) {
    return {a.value * b.value, a.tangent * b.value + a.value * b.tangent};
  }
  WHENCE_HD friend constexpr Dual operator/(Dual a, Dual b) {
    const double q = a.value / b.value;
    return {q, (a.tangent - q * b.tangent) / b.value};
  }
  // Comparisons use the value: the branch taken is the branch that is differentiated.
  WHENCE_HD friend constexpr bool operator==(Dual a, Dual b) { return a.value == b.value; }
  WHENCE_HD friend constexpr bool operator<(Dual a, Dual b) { return a.value < b.value; }
  WHENCE_HD friend constexpr bool operator>(Dual a, Dual b) { return a.value > b.value; }
  WHENCE_HD friend constexpr bool operator<=(Dual a, Dual b) { return a.value <= b.value; }
  WHENCE_HD friend constexpr bool operator>=(Dual a, Dual b) { return a.value >= b.value; }
};

// f(a + a'e) = f(a) + f'(a) a' e
WHENCE_HD inline Dual exp(Dual a) {
  const double y = std::exp(a.value);
  return {y, y * a.tangent};
}
WHENCE_HD inline Dual log(Dual a) { return {std::log(a.value), a.tangent / a.value}; }
WHENCE_HD inline Dual log1p(Dual a) { return {std::log1p(a.value), a.tangent / (1 + a.value)}; }
WHENCE_HD inline Dual sqrt(Dual a) {
  const double y = std::sqrt(a.value);
  return {y, 0.5 * a.tangent / y};
}
WHENCE_HD inline Dual tanh(Dual a) {
  const double y = std::tanh(a.value);
  return {y, (1 - y * y) * a.tangent};
}
WHENCE_HD inline Dual erf(Dual a) {
  return {std::erf(a.value), 1.1283791670955126 * std::exp(-a.value * a.value) * a.tangent};
}
WHENCE_HD inline Dual sin(Dual a) { return {std::sin(a.value), std::cos(a.value) * a.tangent}; }
WHENCE_HD inline Dual cos(Dual a) { return {std::cos(a.value), -std::sin(a.value) * a.tangent}; }
WHENCE_HD inline Dual abs(Dual a) { return a.value < 0 ? -a : a; }
WHENCE_HD inline Dual floor(Dual a) { return {std::floor(a.value), 0}; }
WHENCE_HD inline Dual ceil(Dual a) { return {std::ceil(a.value), 0}; }
WHENCE_HD inline bool isfinite(Dual a) { return std::isfinite(a.value) && std::isfinite(a.tangent); }

}  // namespace whence

// A number that counts its operations: the float or double of a kernel under the emulator. Results are those of the
// plain type, bit for bit. Mixed expressions have the same types: Counted<float> times double is Counted<double>.
#pragma once

#include <compare>
#include <functional>
#include <type_traits>

#include "cuda/emulator/running.h"
#include "tensor/convert.h"
#include "tensor/math.h"

namespace whence::gpu {

template <class C> class Counted {
 public:
  // Marks the type for tensor/math.h: the functions of a number are in special() and simple().
  using plain_number = C;

  Counted() = default;
  template <class A>
    requires std::is_arithmetic_v<A>
  constexpr Counted(A value) : value_(static_cast<C>(value)) {}
  Counted(Float16 value) : value_(value) {}
  Counted(BFloat16 value) : value_(value) {}
  // Widens implicitly, as float to double does; narrowing must be explicit.
  template <class D>
  explicit(sizeof(D) > sizeof(C)) constexpr Counted(Counted<D> other) : value_(static_cast<C>(other.plain())) {}

  constexpr C plain() const { return value_; }
  template <class A>
    requires std::is_arithmetic_v<A>
  explicit constexpr operator A() const {
    return static_cast<A>(value_);
  }

  // Applies f to the plain number, and counts one special function, or one arithmetic operation.
  template <class F> auto special(const F& f) const {
    ++emulator::running.now.special;
    return wrapped(f(value_));
  }
  template <class F> auto simple(const F& f) const {
    ++emulator::running.now.arithmetic;
    return wrapped(f(value_));
  }

  template <class B> Counted& operator+=(const B& b) { return *this = Counted(*this + b); }
  template <class B> Counted& operator-=(const B& b) { return *this = Counted(*this - b); }
  template <class B> Counted& operator*=(const B& b) { return *this = Counted(*this * b); }
  template <class B> Counted& operator/=(const B& b) { return *this = Counted(*this / b); }
  // Not counted: the sign is part of the next operation.
  friend Counted operator-(Counted a) { return Counted(-a.value_); }
  friend Counted operator+(Counted a) { return a; }

 private:
  static bool wrapped(bool decision) { return decision; }
  static Counted wrapped(C value) { return Counted(value); }

  C value_;
};

// The operands that a counted number may be combined with: another one, a plain number, or an element of memory with
// either.
template <class A> struct NumberTraits {
  static constexpr bool counted = false, is = std::is_arithmetic_v<A>;
  using plain_type = A;
  static const A& plain(const A& a) { return a; }
};
template <class C> struct NumberTraits<Counted<C>> {
  static constexpr bool counted = true, is = true;
  using plain_type = C;
  static C plain(const Counted<C>& a) { return a.plain(); }
};

template <class A, class B>
concept CountedPair =
    NumberTraits<A>::is && NumberTraits<B>::is && (NumberTraits<A>::counted || NumberTraits<B>::counted);
template <class A, class B>
using CountedOf = std::common_type_t<typename NumberTraits<A>::plain_type, typename NumberTraits<B>::plain_type>;

// Applies f to two plain numbers, and increments `counter`.
template <class A, class B, class F> auto counted(std::uint64_t& counter, const F& f, const A& a, const B& b) {
  ++counter;
  using C = CountedOf<A, B>;
  return f(static_cast<C>(NumberTraits<A>::plain(a)), static_cast<C>(NumberTraits<B>::plain(b)));
}

template <class A, class B>
  requires CountedPair<A, B>
auto operator+(const A& a, const B& b) {
  return Counted<CountedOf<A, B>>(counted(emulator::running.now.arithmetic, std::plus<>{}, a, b));
}
template <class A, class B>
  requires CountedPair<A, B>
auto operator-(const A& a, const B& b) {
  return Counted<CountedOf<A, B>>(counted(emulator::running.now.arithmetic, std::minus<>{}, a, b));
}
template <class A, class B>
  requires CountedPair<A, B>
auto operator*(const A& a, const B& b) {
  return Counted<CountedOf<A, B>>(counted(emulator::running.now.arithmetic, std::multiplies<>{}, a, b));
}
template <class A, class B>
  requires CountedPair<A, B>
auto operator/(const A& a, const B& b) {
  return Counted<CountedOf<A, B>>(counted(emulator::running.now.divisions, std::divides<>{}, a, b));
}
template <class A, class B>
  requires CountedPair<A, B>
auto operator==(const A& a, const B& b) {
  return counted(emulator::running.now.arithmetic, std::equal_to<>{}, a, b);
}
template <class A, class B>
  requires CountedPair<A, B>
auto operator<=>(const A& a, const B& b) {
  return counted(emulator::running.now.arithmetic, std::compare_three_way{}, a, b);
}

// Returns the plain value, for integers and decisions that are not counted.
template <class C> C plain(const C& value) { return value; }
template <class C> C plain(const Counted<C>& value) { return value.plain(); }

template <class C> struct NumberOf {
  using type = C;
};
template <> struct NumberOf<float> {
  using type = Counted<float>;
};
template <> struct NumberOf<double> {
  using type = Counted<double>;
};
template <class C> using Number = typename NumberOf<C>::type;  // float or double in a kernel

using whence::convert;  // of plain numbers

// Converts a counted number to any other type and back, with the rounding of tensor/convert.h. Found by
// argument-dependent lookup where a kernel calls convert<T>(x).
template <class To, class From> auto convert(const Counted<From>& value) {
  using Plain = typename NumberTraits<To>::plain_type;
  if constexpr (std::is_same_v<Plain, Dual>)
    return Dual(static_cast<double>(value.plain()));
  else if constexpr (std::is_floating_point_v<Plain>)
    return Counted<Plain>(whence::convert<Plain>(value.plain()));
  else
    return whence::convert<Plain>(value.plain());
}

}  // namespace whence::gpu

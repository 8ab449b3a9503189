// The types a tensor can hold, and `visit`: the only place where a runtime dtype becomes a C++ type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <type_traits>

#include "tensor/dual.h"
#include "tensor/half.h"

namespace whence {

enum class DType : std::uint8_t { f16, bf16, f32, f64, i32, i64, boolean, dual };

template <class T> struct Type {
  using type = T;
};

// Calls f(Type<T>{}) for the T that `dtype` names. This and the switches below list every dtype and have no default, so
// that a new dtype does not compile until all of them handle it.
template <class F> WHENCE_HD constexpr decltype(auto) visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f16: return f(Type<Float16>{});
    case DType::bf16: return f(Type<BFloat16>{});
    case DType::f32: return f(Type<float>{});
    case DType::f64: return f(Type<double>{});
    case DType::i32: return f(Type<std::int32_t>{});
    case DType::i64: return f(Type<std::int64_t>{});
    case DType::boolean: return f(Type<bool>{});
    case DType::dual: return f(Type<Dual>{});
  }
  __builtin_unreachable();
}

namespace detail {

template <class T> struct Names {
  template <class Named> WHENCE_HD constexpr bool operator()(Type<Named>) const { return std::is_same_v<T, Named>; }
};
template <class T> constexpr DType find_dtype() {
  int dtype = 0;
  while (!visit(static_cast<DType>(dtype), Names<T>{})) ++dtype;
  return static_cast<DType>(dtype);
}

}  // namespace detail

// Not a lambda: nvcc 13 fails on a lambda here when it parses another template's body.
template <class T> inline constexpr DType dtype_of = detail::find_dtype<T>();

// compute_t is the type of arithmetic on T. The store rounds once.
template <class T>
using compute_t = std::conditional_t<std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>, float, T>;

// The same for a dtype: f32 for 16 bits.
constexpr DType compute_dtype(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype; }

constexpr bool is_floating(DType dtype) {  // true for dual
  return visit(dtype, []<class T>(Type<T>) { return !std::is_integral_v<T>; });
}
constexpr bool is_index(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }
constexpr std::size_t size_of(DType dtype) {  // bytes
  return visit(dtype, []<class T>(Type<T>) { return sizeof(T); });
}
// True if a float can represent every number of the dtype.
constexpr bool fits_float(DType dtype) { return is_floating(dtype) && size_of(dtype) <= sizeof(float); }

const char* to_string(DType dtype);  // "f32"
inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << to_string(dtype); }

// Returns the distance between 1 and the next number of the dtype, the unit of tolerances. Throws Error for integers
// and bool.
double epsilon_of(DType dtype);

[[noreturn]] void wrong_dtype(const char* op, DType given, const char* required);  // throws Error

// visit for floating types except duals; throws Error naming `op` for the others.
template <class F> decltype(auto) visit_real(const char* op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::f16: return f(Type<Float16>{});
    case DType::bf16: return f(Type<BFloat16>{});
    case DType::f32: return f(Type<float>{});
    case DType::f64: return f(Type<double>{});
    case DType::dual: wrong_dtype(op, dtype, "f16, bf16, f32 or f64");
    case DType::i32:
    case DType::i64:
    case DType::boolean: break;
  }
  wrong_dtype(op, dtype, "a floating dtype");
}
// The same, with duals.
template <class F> decltype(auto) visit_floating(const char* op, DType dtype, F&& f) {
  if (dtype == DType::dual) return f(Type<Dual>{});
  return visit_real(op, dtype, f);
}

// Calls f(Type<A>{}, Type<B>{}) for two floating dtypes that are equal, or one of which is the other's compute type.
template <class F> void visit_real(const char* op, DType a, DType b, F&& f) {
  visit_real(op, a, [&]<class A>(Type<A> of_a) {
    visit_real(op, b, [&]<class B>(Type<B> of_b) {
      if constexpr (std::is_same_v<A, B> || std::is_same_v<A, compute_t<B>> || std::is_same_v<compute_t<A>, B>)
        f(of_a, of_b);
      else
        wrong_dtype(op, b, "an equal dtype, or f32 beside 16 bits,");
    });
  });
}
template <class F> void visit_floating(const char* op, DType a, DType b, F&& f) {
  if (a == DType::dual && b == DType::dual) return f(Type<Dual>{}, Type<Dual>{});
  visit_real(op, a, b, f);
}

// The same for i32 and i64; throws Error naming `op` for the others.
template <class F> decltype(auto) visit_index(const char* op, DType dtype, F&& f) {
  if (dtype == DType::i32) return f(Type<std::int32_t>{});
  if (dtype == DType::i64) return f(Type<std::int64_t>{});
  wrong_dtype(op, dtype, "i32 or i64");
}

}  // namespace whence

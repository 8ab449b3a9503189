// Every function of one number or two, with its derivative, once. CPU, CUDA, autograd and tests all read this list.
#pragma once

#include "tensor/math.h"

namespace whence {

// What a derivative is computed from, and so what backward has to keep.
enum class Saves : unsigned char { nothing, input, output };

// Attributes of a function: affine is a x + b, clamp is [a, b], leaky_relu has slope a.
struct UnaryAttributes {
  double a = 0, b = 0;
};

enum class Unary : unsigned char {
  affine,
  abs,
  exp,
  log,
  log1p,
  sqrt,
  square,
  reciprocal,
  sin,
  cos,
  tanh,
  sigmoid,
  softplus,
  silu,
  relu,
  leaky_relu,
  gelu,
  gelu_erf,
  clamp
};

// Each has  value(x) = y  and  derivative(v) = dy/dx, where v is what Saves names. T is a compute type: float, double,
// Dual.
// One line per formula, so that the table reads as one.
// clang-format off
namespace unary_functions {

struct Affine {  // y = a x + b
  static constexpr Saves saves = Saves::nothing;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes p) { return T(p.a) * x + T(p.b); }
  template <class T> WHENCE_HD static T derivative(T, UnaryAttributes p) { return T(p.a); }
};
struct Abs {  // at 0: 0
  static constexpr Saves saves = Saves::input;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return x > T(0) ? x : (x < T(0) ? -x : T(0) * T(x)); }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) { return x > T(0) ? T(1) : (x < T(0) ? T(-1) : T(0)); }
};
struct Exp {  // y' = y
  static constexpr Saves saves = Saves::output;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return math::exp(x); }
  template <class T> WHENCE_HD static T derivative(T y, UnaryAttributes) { return y; }
};
struct Log {
  static constexpr Saves saves = Saves::input;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return math::log(x); }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) { return T(1) / x; }
};
struct Log1p {  // log(1 + x)
  static constexpr Saves saves = Saves::input;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return math::log1p(x); }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) { return T(1) / (T(1) + x); }
};
struct Sqrt {
  static constexpr Saves saves = Saves::output;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return math::sqrt(x); }
  template <class T> WHENCE_HD static T derivative(T y, UnaryAttributes) { return T(0.5) / y; }
};
struct Square {
  static constexpr Saves saves = Saves::input;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return x * x; }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) { return T(2) * x; }
};
struct Reciprocal {
  static constexpr Saves saves = Saves::output;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return T(1) / x; }
  template <class T> WHENCE_HD static T derivative(T y, UnaryAttributes) { return -y * y; }
};
struct Sin {
  static constexpr Saves saves = Saves::input;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return math::sin(x); }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) { return math::cos(x); }
};
struct Cos {
  static constexpr Saves saves = Saves::input;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return math::cos(x); }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) { return -math::sin(x); }
};
struct Tanh {  // y' = 1 - y^2
  static constexpr Saves saves = Saves::output;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return math::tanh(x); }
  template <class T> WHENCE_HD static T derivative(T y, UnaryAttributes) { return T(1) - y * y; }
};
struct Sigmoid {  // y' = y (1 - y); exactly 0 where y has rounded to 0 or 1
  static constexpr Saves saves = Saves::output;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return math::sigmoid(x); }
  template <class T> WHENCE_HD static T derivative(T y, UnaryAttributes) { return y * (T(1) - y); }
};
struct Softplus {  // log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), where e never overflows; y' = s, the sigmoid
  static constexpr Saves saves = Saves::input;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) {
    return (x > T(0) ? x : T(0)) + math::log1p(math::exp(x > T(0) ? -x : x));
  }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) { return math::sigmoid(x); }
};
struct Silu {  // x s, s the sigmoid of x; y' = s (1 + x (1 - s))  (Elfwing et al. 2017)
  static constexpr Saves saves = Saves::input;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return x * math::sigmoid(x); }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) {
    const T s = math::sigmoid(x);
    return s * (T(1) + x * (T(1) - s));
  }
};
struct Relu {  // at 0: 0
  static constexpr Saves saves = Saves::output;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return x > T(0) ? x : T(0) * x; }
  template <class T> WHENCE_HD static T derivative(T y, UnaryAttributes) { return y > T(0) ? T(1) : T(0); }
};
struct LeakyRelu {  // at 0: the slope
  static constexpr Saves saves = Saves::input;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes p) { return x > T(0) ? x : T(p.a) * x; }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes p) { return x > T(0) ? T(1) : T(p.a); }
};
struct Gelu {  // GPT-2's form: x s(2u), u = sqrt(2/pi) (x + 0.044715 x^3), s the sigmoid  (Hendrycks and Gimpel 2016)
  static constexpr Saves saves = Saves::input;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) {
    return x * math::sigmoid(T(1.5957691216057308) * (x + T(0.044715) * x * x * x));
  }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) {
    const T s = math::sigmoid(T(1.5957691216057308) * (x + T(0.044715) * x * x * x));
    return s + x * s * (T(1) - s) * T(1.5957691216057308) * (T(1) + T(0.134145) * x * x);
  }
};
struct GeluErf {  // x Phi(x), Phi the normal distribution function
  static constexpr Saves saves = Saves::input;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) {
    return x * T(0.5) * (T(1) + math::erf(x * T(0.70710678118654752)));
  }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) {
    return T(0.5) * (T(1) + math::erf(x * T(0.70710678118654752))) + x * T(0.39894228040143268) * math::exp(T(-0.5) * x * x);
  }
};
struct Clamp {  // at the bounds: 1, as PyTorch has it
  static constexpr Saves saves = Saves::input;
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes p) { return x < T(p.a) ? T(p.a) : (x > T(p.b) ? T(p.b) : x); }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes p) { return x < T(p.a) || x > T(p.b) ? T(0) : T(1); }
};

}  // namespace unary_functions
// clang-format on

// f(Affine{}), f(Abs{}), ...: the runtime name as a type.
template <class F>
WHENCE_HD decltype(auto) visit(Unary function, F&& f) {
  switch (function) {
    case Unary::affine: return f(unary_functions::Affine{});
    case Unary::abs: return f(unary_functions::Abs{});
    case Unary::exp: return f(unary_functions::Exp{});
    case Unary::log: return f(unary_functions::Log{});
    case Unary::log1p: return f(unary_functions::Log1p{});
    case Unary::sqrt: return f(unary_functions::Sqrt{});
    case Unary::square: return f(unary_functions::Square{});
    case Unary::reciprocal: return f(unary_functions::Reciprocal{});
    case Unary::sin: return f(unary_functions::Sin{});
    case Unary::cos: return f(unary_functions::Cos{});
    case Unary::tanh: return f(unary_functions::Tanh{});
    case Unary::sigmoid: return f(unary_functions::Sigmoid{});
    case Unary::softplus: return f(unary_functions::Softplus{});
    case Unary::silu: return f(unary_functions::Silu{});
    case Unary::relu: return f(unary_functions::Relu{});
    case Unary::leaky_relu: return f(unary_functions::LeakyRelu{});
    case Unary::gelu: return f(unary_functions::Gelu{});
    case Unary::gelu_erf: return f(unary_functions::GeluErf{});
    default: return f(unary_functions::Clamp{});
  }
}

enum class Binary : unsigned char { add, subtract, multiply, divide, maximum, minimum, greater_equal };

// y = f(a, b); the derivatives are compositions of these and stand in autograd/ops/binary.cpp.
// clang-format off
namespace binary_functions {

// max and min of equal numbers are that number; each argument has half of the gradient, so a dual has the mean of both
// tangents.
template <class T> WHENCE_HD T at_tie(T a, T) { return a; }
WHENCE_HD inline Dual at_tie(Dual a, Dual b) { return {a.value, 0.5 * (a.tangent + b.tangent)}; }

struct Add { template <class T> WHENCE_HD static T value(T a, T b) { return a + b; } };
struct Subtract { template <class T> WHENCE_HD static T value(T a, T b) { return a - b; } };
struct Multiply { template <class T> WHENCE_HD static T value(T a, T b) { return a * b; } };
struct Divide { template <class T> WHENCE_HD static T value(T a, T b) { return a / b; } };
struct Maximum { template <class T> WHENCE_HD static T value(T a, T b) { return a == b ? at_tie(a, b) : (a > b ? a : b); } };
struct Minimum { template <class T> WHENCE_HD static T value(T a, T b) { return a == b ? at_tie(a, b) : (b > a ? a : b); } };
struct GreaterEqual { template <class T> WHENCE_HD static T value(T a, T b) { return a >= b ? T(1) : T(0); } };

}  // namespace binary_functions
// clang-format on

template <class F>
WHENCE_HD decltype(auto) visit(Binary function, F&& f) {
  switch (function) {
    case Binary::add: return f(binary_functions::Add{});
    case Binary::subtract: return f(binary_functions::Subtract{});
    case Binary::multiply: return f(binary_functions::Multiply{});
    case Binary::divide: return f(binary_functions::Divide{});
    case Binary::maximum: return f(binary_functions::Maximum{});
    case Binary::minimum: return f(binary_functions::Minimum{});
    default: return f(binary_functions::GreaterEqual{});
  }
}

}  // namespace whence

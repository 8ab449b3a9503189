// Every function of one number or two, with its derivative, once. CPU, CUDA, autograd and tests read these lists. A
// function that is added here and declared in autograd/ops.h gets kernels, gradient and every test.
#pragma once

#include <array>
#include <limits>
#include <type_traits>

#include "tensor/math.h"

namespace whence {

// The argument of the derivative, which backward must save.
enum class Saves : unsigned char { nothing, input, output };

// The name of the region where f's derivative is near 0, if there is a usual one.
enum class Flat : unsigned char { nowhere, saturated, clamped, dead, leaking };

// Attributes of a function: affine is a x + b, clamp is [a, b], leaky_relu has slope a.
struct UnaryAttributes {
  double a = 0, b = 0;
};

// UnaryFacts: data about a function of one number, next to its formula.
struct UnaryFacts {
  struct Known {
    double x, y;
  };
  struct Kink {
    double x = std::numeric_limits<double>::quiet_NaN(), derivative = 0;
  };
  struct Samples {
    double low = -2, high = 2;     // numbers are drawn from this range: f is defined there and not steep
    UnaryAttributes attributes{};  // for all samples, and for `known`
    Kink kinks[2] = {};            // points without a derivative, and the value returned there
  };
  const char* name;
  Saves saves;
  Flat flat;
  Known known[3];  // y = f(x) from an independent source, in ascending order of x
  Samples samples{};
};

// Each has  value(x) = y  and  derivative(v) = dy/dx, where v is the value that facts.saves names. T is a compute type:
// float, double, Dual. A branch at x must let NaN through, and must not multiply an infinity by 0. One line per
// formula, so that the table reads as one. clang-format off
namespace functions {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

struct Affine {  // y = a x + b
  static constexpr UnaryFacts facts{
      "affine", Saves::nothing, Flat::nowhere, {{-2, 3.25}, {0, 0.25}, {1, -1.25}}, {.attributes = {-1.5, 0.25}}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes p) { return T(p.a) * x + T(p.b); }
  template <class T> WHENCE_HD static T derivative(T, UnaryAttributes p) { return T(p.a); }
};
struct Abs {
  static constexpr UnaryFacts facts{
      "abs", Saves::input, Flat::nowhere, {{-infinity, infinity}, {-2, 2}, {1.5, 1.5}}, {.kinks = {{0, 0}}}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return x == T(0) ? T(0) : (x < T(0) ? -x : x); }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) {
    return x > T(0) ? T(1) : (x < T(0) ? T(-1) : T(0));
  }
};
struct Exp {  // y' = y
  static constexpr UnaryFacts facts{
      "exp", Saves::output, Flat::nowhere, {{-2, 0.1353352832366127}, {0, 1}, {1, 2.718281828459045}}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return math::exp(x); }
  template <class T> WHENCE_HD static T derivative(T y, UnaryAttributes) { return y; }
};
struct Log {
  static constexpr UnaryFacts facts{
      "log", Saves::input, Flat::nowhere, {{0.5, -0.6931471805599453}, {1, 0}, {3, 1.0986122886681098}}, {.low = 0.5}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return math::log(x); }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) { return T(1) / x; }
};
struct Log1p {  // log(1 + x)
  static constexpr UnaryFacts facts{"log1p", Saves::input, Flat::nowhere,
      {{-0.5, -0.6931471805599453}, {1e-20, 1e-20}, {2, 1.0986122886681098}}, {.low = -0.5}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return math::log1p(x); }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) { return T(1) / (T(1) + x); }
};
struct Sqrt {
  static constexpr UnaryFacts facts{
      "sqrt", Saves::output, Flat::nowhere, {{0.25, 0.5}, {2, 1.4142135623730951}, {9, 3}}, {.low = 0.5}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return math::sqrt(x); }
  template <class T> WHENCE_HD static T derivative(T y, UnaryAttributes) { return T(0.5) / y; }
};
struct Square {
  static constexpr UnaryFacts facts{"square", Saves::input, Flat::nowhere, {{-3, 9}, {0, 0}, {1.5, 2.25}}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return x * x; }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) { return T(2) * x; }
};
struct Reciprocal {
  static constexpr UnaryFacts facts{
      "reciprocal", Saves::output, Flat::nowhere, {{-4, -0.25}, {0.5, 2}, {8, 0.125}}, {.low = 0.5}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return T(1) / x; }
  template <class T> WHENCE_HD static T derivative(T y, UnaryAttributes) { return -y * y; }
};
struct Sin {
  static constexpr UnaryFacts facts{
      "sin", Saves::input, Flat::nowhere, {{-1.5707963267948966, -1}, {0, 0}, {1, 0.8414709848078965}}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return math::sin(x); }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) { return math::cos(x); }
};
struct Cos {
  static constexpr UnaryFacts facts{
      "cos", Saves::input, Flat::nowhere, {{-1, 0.5403023058681398}, {0, 1}, {3.141592653589793, -1}}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return math::cos(x); }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) { return -math::sin(x); }
};
struct Tanh {  // y' = 1 - y^2
  static constexpr UnaryFacts facts{
      "tanh", Saves::output, Flat::saturated, {{-infinity, -1}, {0, 0}, {1, 0.7615941559557649}}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return math::tanh(x); }
  template <class T> WHENCE_HD static T derivative(T y, UnaryAttributes) { return T(1) - y * y; }
};
struct Sigmoid {  // y' = y (1 - y); exactly 0 where y has rounded to 0 or 1
  static constexpr UnaryFacts facts{
      "sigmoid", Saves::output, Flat::saturated, {{-2, 0.11920292202211756}, {0, 0.5}, {1, 0.7310585786300049}}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return math::sigmoid(x); }
  template <class T> WHENCE_HD static T derivative(T y, UnaryAttributes) { return y * (T(1) - y); }
};
struct Softplus {  // log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), where e never overflows; y' = s, the sigmoid
  static constexpr UnaryFacts facts{
      "softplus", Saves::input, Flat::saturated, {{-800, 0}, {0, 0.6931471805599453}, {800, 800}}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) {
    return (x > T(0) ? x : T(0)) + math::log1p(math::exp(x > T(0) ? -x : x));
  }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) { return math::sigmoid(x); }
};
struct Silu {  // x s, s the sigmoid of x; y' = s (1 + x (1 - s))  (Elfwing et al. 2017)
  static constexpr UnaryFacts facts{
      "silu", Saves::input, Flat::saturated, {{-2, -0.23840584404423512}, {0, 0}, {1, 0.7310585786300049}}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return x * math::sigmoid(x); }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) {
    const T s = math::sigmoid(x);
    return s * (T(1) + x * (T(1) - s));
  }
};
struct Relu {  // Nair and Hinton 2010
  static constexpr UnaryFacts facts{
      "relu", Saves::output, Flat::dead, {{-infinity, 0}, {-2, 0}, {3, 3}}, {.kinks = {{0, 0}}}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) { return x <= T(0) ? T(0) : x; }
  template <class T> WHENCE_HD static T derivative(T y, UnaryAttributes) { return y > T(0) ? T(1) : T(0); }
};
struct LeakyRelu {  // slope 0 is relu, also at -infinity  (Maas et al. 2013)
  static constexpr UnaryFacts facts{"leaky_relu", Saves::input, Flat::leaking,
      {{-infinity, -infinity}, {-2, -0.02}, {3, 3}}, {.attributes = {0.01, 0}, .kinks = {{0, 0.01}}}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes p) {
    return x > T(0) ? x : (p.a == 0 && x <= T(0) ? T(0) : T(p.a) * x);
  }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes p) { return x > T(0) ? T(1) : T(p.a); }
};
struct Gelu {  // GPT-2's form: x s(2u), u = sqrt(2/pi) (x + 0.044715 x^3), s the sigmoid  (Hendrycks and Gimpel 2016)
  static constexpr UnaryFacts facts{
      "gelu", Saves::input, Flat::saturated, {{-2, -0.04540230591222498}, {0, 0}, {1, 0.8411919906082767}}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) {
    return x * math::sigmoid(T(1.5957691216057308) * (x + T(0.044715) * x * x * x));
  }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) {
    const T s = math::sigmoid(T(1.5957691216057308) * (x + T(0.044715) * x * x * x));
    const T steep = s * (T(1) - s);  // 0 far from 0, where x^2 may overflow
    return steep == T(0) ? s : s + x * s * (T(1) - s) * T(1.5957691216057308) * (T(1) + T(0.134145) * x * x);
  }
};
struct GeluErf {  // x Phi(x), Phi the normal distribution function  (Hendrycks and Gimpel 2016)
  static constexpr UnaryFacts facts{
      "gelu_erf", Saves::input, Flat::saturated, {{-2, -0.04550026389635842}, {0, 0}, {1, 0.8413447460685429}}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes) {
    return x * T(0.5) * (T(1) + math::erf(x * T(0.70710678118654752)));
  }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes) {
    return T(0.5) * (T(1) + math::erf(x * T(0.70710678118654752))) +
           x * T(0.39894228040143268) * math::exp(T(-0.5) * x * x);
  }
};
struct Clamp {  // the derivative at the bounds is PyTorch's
  static constexpr UnaryFacts facts{"clamp", Saves::input, Flat::clamped, {{-infinity, -0.5}, {0.25, 0.25}, {3, 0.7}},
      {.attributes = {-0.5, 0.7}, .kinks = {{-0.5, 1}, {0.7, 1}}}};
  template <class T> WHENCE_HD static T value(T x, UnaryAttributes p) {
    return x < T(p.a) ? T(p.a) : (x > T(p.b) ? T(p.b) : x);
  }
  template <class T> WHENCE_HD static T derivative(T x, UnaryAttributes p) {
    return x < T(p.a) || x > T(p.b) ? T(0) : T(1);
  }
};

// Known values of a function of two numbers, from an independent source.
struct BinaryFacts {
  const char* name;
  struct {
    double a, b, y;
  } known[3];
};

// At equal numbers max and min return the first. Each argument gets half of the gradient, so a dual gets the mean
// of both tangents.
template <class T> WHENCE_HD T at_tie(T a, T) { return a; }
WHENCE_HD inline Dual at_tie(Dual a, Dual b) { return {a.value, 0.5 * (a.tangent + b.tangent)}; }

// y = f(a, b). Their derivatives are in autograd/ops/binary.cpp, composed of these functions.
struct Add {
  static constexpr BinaryFacts facts{"add", {{1.5, -2, -0.5}, {-3, 4, 1}, {2, 2, 4}}};
  template <class T> WHENCE_HD static T value(T a, T b) { return a + b; }
};
struct Subtract {
  static constexpr BinaryFacts facts{"subtract", {{1.5, -2, 3.5}, {-3, 4, -7}, {2, 2, 0}}};
  template <class T> WHENCE_HD static T value(T a, T b) { return a - b; }
};
struct Multiply {
  static constexpr BinaryFacts facts{"multiply", {{1.5, -2, -3}, {-3, 4, -12}, {2, 2, 4}}};
  template <class T> WHENCE_HD static T value(T a, T b) { return a * b; }
};
struct Divide {
  static constexpr BinaryFacts facts{"divide", {{1.5, -2, -0.75}, {-3, 4, -0.75}, {2, 2, 1}}};
  template <class T> WHENCE_HD static T value(T a, T b) { return a / b; }
};
struct Maximum {  // NaN if either is NaN, as in PyTorch
  static constexpr BinaryFacts facts{"maximum", {{1.5, -2, 1.5}, {-3, 4, 4}, {2, 2, 2}}};
  template <class T> WHENCE_HD static T value(T a, T b) { return a == b ? at_tie(a, b) : (a > b || !(a == a) ? a : b); }
};
struct Minimum {  // NaN as in Maximum
  static constexpr BinaryFacts facts{"minimum", {{1.5, -2, -2}, {-3, 4, -3}, {2, 2, 2}}};
  template <class T> WHENCE_HD static T value(T a, T b) { return a == b ? at_tie(a, b) : (b > a || !(a == a) ? a : b); }
};
struct GreaterEqual {
  static constexpr BinaryFacts facts{"greater_equal", {{1.5, -2, 1}, {-3, 4, 0}, {2, 2, 1}}};
  template <class T> WHENCE_HD static T value(T a, T b) { return a >= b ? T(1) : T(0); }
};

}  // namespace functions
// clang-format on

template <class... F> struct List {};

using UnaryFunctions = List<functions::Affine, functions::Abs, functions::Exp, functions::Log, functions::Log1p,
    functions::Sqrt, functions::Square, functions::Reciprocal, functions::Sin, functions::Cos, functions::Tanh,
    functions::Sigmoid, functions::Softplus, functions::Silu, functions::Relu, functions::LeakyRelu, functions::Gelu,
    functions::GeluErf, functions::Clamp>;
using BinaryFunctions = List<functions::Add, functions::Subtract, functions::Multiply, functions::Divide,
    functions::Maximum, functions::Minimum, functions::GreaterEqual>;

// One type of a list, chosen at run time: Unary(functions::Relu{}). It can only hold types of the list.
template <class L> class OneOf;
template <class... Fs> class OneOf<List<Fs...>> {
 public:
  template <class F>
    requires(std::is_same_v<F, Fs> || ...)
  WHENCE_HD constexpr OneOf(F) : index_(position<F>()) {}
  WHENCE_HD constexpr int index() const { return index_; }
  static constexpr std::array<OneOf, sizeof...(Fs)> all() { return {Fs{}...}; }

 private:
  template <class F> WHENCE_HD static constexpr unsigned char position() {
    unsigned char before = 0;
    (void)((std::is_same_v<F, Fs> || (++before, false)) || ...);
    return before;
  }
  unsigned char index_;
};
using Unary = OneOf<UnaryFunctions>;
using Binary = OneOf<BinaryFunctions>;

namespace detail {
template <class First, class... Rest, class G>
WHENCE_HD constexpr decltype(auto) visit_at(int index, List<First, Rest...>, G&& g) {
  if constexpr (sizeof...(Rest) > 0) {
    if (index != 0) return visit_at(index - 1, List<Rest...>{}, g);
  }
  return g(First{});
}
}  // namespace detail

// Calls g(functions::Affine{}), or with whichever function it holds.
template <class... Fs, class G> WHENCE_HD constexpr decltype(auto) visit(OneOf<List<Fs...>> function, G&& g) {
  return detail::visit_at(function.index(), List<Fs...>{}, g);
}

template <class L> constexpr const auto& facts_of(OneOf<L> function) {
  return visit(function, []<class F>(F) -> const auto& { return F::facts; });
}

// Every function must give its three known points: without them it does not compile.
static_assert([] {
  for (const Unary f : Unary::all()) {
    const auto& known = facts_of(f).known;
    if (!(known[0].x < known[1].x && known[1].x < known[2].x)) return false;
  }
  return true;
}());

}  // namespace whence

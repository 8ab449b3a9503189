// Each op with denormals, -0, infinities and NaN, in value and gradient: against definitions by the standard library in
// the same precision, on the CPU and on the GPU, or the emulated one.
#include <algorithm>
#include <limits>

#include "examples/whence/verify/bare_attention.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity(),
                 not_a_number = std::numeric_limits<double>::quiet_NaN();

std::vector<Device> devices() {
  std::vector<Device> all{Device::cpu()};
  if (has_cuda()) all.push_back(Device::cuda(0));
  return all;
}

template <class T> std::vector<T> special() {
  const T least = std::numeric_limits<T>::min(), denormal = least / 1024, most = std::numeric_limits<T>::max();
  const T inf = std::numeric_limits<T>::infinity();
  return {-inf, -most, -1, -least, -denormal, -T(0), T(0), denormal, least, 1, most, inf, T(not_a_number)};
}

// True if both are NaN, the same infinity, zeros of the same sign, or differ by at most 8 steps of T.
template <class T> bool alike(double got, T wanted) {
  if (std::isnan(wanted)) return std::isnan(got);
  if (std::isinf(wanted) || wanted == 0)
    return got == static_cast<double>(wanted) && std::signbit(got) == std::signbit(wanted);
  const int exponent = std::max(std::ilogb(wanted), std::numeric_limits<T>::min_exponent - 1);
  return std::fabs(got - static_cast<double>(wanted)) <= std::ldexp(8.0, exponent - std::numeric_limits<T>::digits + 1);
}

// A formula in terms of the standard library.
template <class T> struct Plain {
  const char* name;
  T (*value)(T);
  T (*slope)(T);
};
template <class T> T logistic(T x) { return 1 / (1 + std::exp(-x)); }
template <class T> T bend(T x) { return logistic(T(1.5957691216057308) * (x + T(0.044715) * x * x * x)); }
template <class T> T normal_share(T x) { return T(0.5) * (1 + std::erf(x * T(0.70710678118654752))); }
template <class T> const std::vector<Plain<T>>& plain() {
  // clang-format off
  static const std::vector<Plain<T>> all{
      {"affine", [](T x) { return T(-1.5) * x + T(0.25); }, [](T) { return T(-1.5); }},
      {"abs", [](T x) { return std::fabs(x); }, [](T x) { return T((x > 0) - (x < 0)); }},
      {"exp", [](T x) { return std::exp(x); }, [](T x) { return std::exp(x); }},
      {"log", [](T x) { return std::log(x); }, [](T x) { return 1 / x; }},
      {"log1p", [](T x) { return std::log1p(x); }, [](T x) { return 1 / (1 + x); }},
      {"sqrt", [](T x) { return std::sqrt(x); }, [](T x) { return T(0.5) / std::sqrt(x); }},
      {"square", [](T x) { return x * x; }, [](T x) { return 2 * x; }},
      {"reciprocal", [](T x) { return 1 / x; }, [](T x) { return -(1 / x) * (1 / x); }},
      {"sin", [](T x) { return std::sin(x); }, [](T x) { return std::cos(x); }},
      {"cos", [](T x) { return std::cos(x); }, [](T x) { return -std::sin(x); }},
      {"tanh", [](T x) { return std::tanh(x); }, [](T x) { return 1 - std::tanh(x) * std::tanh(x); }},
      {"sigmoid", [](T x) { return logistic(x); }, [](T x) { return logistic(x) * (1 - logistic(x)); }},
      {"softplus", [](T x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }, [](T x) { return logistic(x); }},
      {"silu", [](T x) { return x * logistic(x); }, [](T x) { return logistic(x) * (1 + x * (1 - logistic(x))); }},
      {"relu", [](T x) { return x <= 0 ? T(0) : x; }, [](T x) { return T(x > 0); }},
      {"leaky_relu", [](T x) { return x > 0 ? x : T(0.01) * x; }, [](T x) { return x > 0 ? T(1) : T(0.01); }},
      {"gelu", [](T x) { return x * bend(x); }, [](T x) {
         const T s = bend(x);
         return s == 0 || s == 1 ? s : s + x * s * (1 - s) * T(1.5957691216057308) * (1 + T(0.134145) * x * x);
       }},
      {"gelu_erf", [](T x) { return x * normal_share(x); }, [](T x) {
         return normal_share(x) + x * T(0.39894228040143268) * std::exp(T(-0.5) * x * x);
       }},
      {"clamp", [](T x) { return x < T(-0.5) ? T(-0.5) : x > T(0.7) ? T(0.7) : x; }, [](T x) { return T(!(x < T(-0.5)) && !(x > T(0.7))); }}};
  // clang-format on
  return all;
}

// Two functions of two numbers and their slopes. Maximum and minimum keep NaN; each argument has half the gradient
// then.
template <class T> struct PlainPair {
  const char* name;
  Tensor (*op)(const Tensor&, const Tensor&, Site);
  T (*value)(T, T);
  T (*by_a)(T, T);
  T (*by_b)(T, T);
};
template <class T> T share(T a, T b) { return a > b ? T(1) : a < b ? T(0) : T(0.5); }
template <class T> const std::vector<PlainPair<T>>& plain_pairs() {
  static const std::vector<PlainPair<T>> all{
      {"add", add, [](T a, T b) { return a + b; }, [](T, T) { return T(1); }, [](T, T) { return T(1); }},
      {"subtract", subtract, [](T a, T b) { return a - b; }, [](T, T) { return T(1); }, [](T, T) { return T(-1); }},
      {"multiply", multiply, [](T a, T b) { return a * b; }, [](T, T b) { return b; }, [](T a, T) { return a; }},
      {"divide", divide, [](T a, T b) { return a / b; }, [](T, T b) { return 1 / b; },
          [](T a, T b) { return -(1 / b * (a / b)) + T(0); }},
      {"maximum", maximum, [](T a, T b) { return a >= b || std::isnan(a) ? a : b; },
          [](T a, T b) { return share(a, b); }, [](T a, T b) { return 1 - share(a, b); }},
      {"minimum", minimum, [](T a, T b) { return a <= b || std::isnan(a) ? a : b; },
          [](T a, T b) { return share(b, a); }, [](T a, T b) { return 1 - share(b, a); }}};
  return all;
}

template <class T> Tensor leaf_of(const std::vector<T>& numbers, Device device) {
  const std::vector<double> values(numbers.begin(), numbers.end());
  return requires_grad(raw::to_device(Tensor::of(values, {std::ssize(values)}, dtype_of<T>), device));
}

// Repeats the numbers often enough for the widest vectors and their remainder.
template <class T> std::vector<T> many(const std::vector<T>& numbers) {
  std::vector<T> all;
  for (int k = 0; k < 9; ++k) all.insert(all.end(), numbers.begin(), numbers.end());
  return all;
}

template <class T>
void expect_alike(const std::string& what, const std::vector<double>& got, const std::vector<T>& wanted) {
  REQUIRE(got.size() == wanted.size());
  for (std::size_t k = 0; k < got.size(); ++k)
    CHECK_MESSAGE(alike(got[k], wanted[k]), what, ", number ", k, ": ", got[k], " instead of ", wanted[k]);
}

// Compares op(inputs) and its gradient by each input with what is wanted, on every device.
template <class T>
void check(const std::string& name, const std::vector<std::vector<T>>& inputs,
    const std::function<Tensor(const std::vector<Tensor>&)>& op, const std::vector<std::vector<T>>& wanted) {
  for (const Device device : devices()) {
    INFO(std::string(to_string(dtype_of<T>)), " on ", to_string(device));
    std::vector<Tensor> leaves;
    for (const std::vector<T>& each : inputs) leaves.push_back(leaf_of(each, device));
    const Tensor y = op(leaves);
    std::vector<Tensor> found = grad(y, Tensor::ones(y.shape(), y.dtype(), device), leaves);
    found.insert(found.begin(), y);
    for (std::size_t k = 0; k < found.size(); ++k)
      expect_alike(to_text(name, ", result ", k), found[k].to_vector(), wanted[k]);
  }
}

template <class T> void check_unary() {
  for (const Unary f : Unary::all()) {
    const std::string name = facts_of(f).name;
    const auto one = std::ranges::find_if(plain<T>(), [&](const Plain<T>& each) { return each.name == name; });
    REQUIRE_MESSAGE(one != plain<T>().end(), name, " has no definition here");
    std::vector<T> numbers = special<T>(), values, slopes;
    for (const auto& known : facts_of(f).known) numbers.push_back(static_cast<T>(known.x));
    numbers = many(numbers);
    for (const T number : numbers) values.push_back(one->value(number)), slopes.push_back(one->slope(number));
    const UnaryAttributes attributes = facts_of(f).samples.attributes;
    check<T>(name, {numbers}, [&](const auto& x) { return unary(f, x[0], attributes); }, {values, slopes});
  }
}

template <class T> void check_pairs() {
  for (const PlainPair<T>& one : plain_pairs<T>()) {
    std::vector<T> left, right, values, by_a, by_b;
    for (const T a : special<T>())
      for (const T b : special<T>()) {
        left.push_back(a), right.push_back(b), values.push_back(one.value(a, b));
        by_a.push_back(one.by_a(a, b)), by_b.push_back(one.by_b(a, b));
      }
    const auto op = [&](const auto& x) { return one.op(x[0], x[1], Site::current()); };
    check<T>(one.name, {left, right}, op, {values, by_a, by_b});
  }
}

}  // namespace

TEST_CASE("functions have their known values, and at their kinks the derivatives that are stated") {
  for (const Unary f : Unary::all()) {
    const UnaryFacts& facts = facts_of(f);
    const UnaryAttributes p = facts.samples.attributes;
    visit(f, [&]<class F>(F) {
      for (const auto& known : facts.known)
        CHECK_MESSAGE(alike(F::value(known.x, p), known.y), F::facts.name, " of ", known.x);
      for (const auto& kink : facts.samples.kinks) {
        const double saved = F::facts.saves == Saves::output ? F::value(kink.x, p) : kink.x;
        if (!std::isnan(kink.x)) CHECK_MESSAGE(F::derivative(saved, p) == kink.derivative, F::facts.name);
      }
    });
  }
  for (const Binary f : Binary::all())
    for (const auto& known : facts_of(f).known)
      visit(f, [&]<class F>(F) { CHECK_MESSAGE(F::value(known.a, known.b) == known.y, F::facts.name); });
  CHECK(raw::unary(functions::LeakyRelu{}, Tensor::scalar(-INFINITY), {0, 0}).item() == 0);
}

TEST_CASE("functions of one number: denormals are kept, -0, infinities and NaN are what the formula says") {
  check_unary<float>();
  check_unary<double>();
}

TEST_CASE("functions of two numbers of every special pair, and their gradients") {
  check_pairs<float>();
  check_pairs<double>();
}

TEST_CASE("clamp with its bounds exchanged applies the lower one first") {
  for (const Device device : devices())
    CHECK(clamp(leaf_of<double>({-2, 0, 2}, device), 1, -1).to_vector() == std::vector<double>{1, 1, -1});
}

TEST_CASE("products and attention keep denormals, on every thread and in vector code") {
  const float denormal = std::numeric_limits<float>::min() / 1024;
  for (const Device device : devices()) {
    for (const index_t size : {1, 5, 64, 200}) {
      const Tensor a = raw::to_device(Tensor::full({size, size}, static_cast<double>(denormal)), device),
                   one = raw::to_device(Tensor::ones({size, 1}), device);
      for (const double value : raw::matmul(a, one).to_vector())
        CHECK(value == static_cast<double>(denormal) * static_cast<double>(size));
    }
  }
  const BareAttention scheme("none", {16, 2, 70});
  const AttendInputs inputs = random_inputs(scheme, 1, 70, 5, DType::f32);
  kernels(Device::cpu()).fill(inputs.value, static_cast<double>(denormal));
  for (const Executor executor : all_executors)
    for (const double value : scheme.run(inputs, executor).output.to_vector())
      CHECK(value == doctest::Approx(static_cast<double>(denormal)).epsilon(0.05));
}

// The float functions of tensor/math.h against the library in double, measured in units in the last place.
#include "tensor/math.h"

#include <limits>

#include "tests/support/tensors.h"

using namespace whence;

namespace {

// Returns the number of floats between `got` and the exact result; the spacing is that of floats around the exact
// result.
double units(float got, double exact) {
  if (std::isnan(exact)) return std::isnan(got) ? 0 : 1e9;
  const float rounded = static_cast<float>(exact);
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : 1e9;
  const double spacing = std::ldexp(1.0, std::max(exact == 0 ? -126 : std::ilogb(exact), -126) - 23);
  return std::fabs(static_cast<double>(got) - exact) / spacing;
}

template <class F, class Exact> double worst(double low, double high, const F& f, const Exact& exact) {
  double result = 0;
  constexpr int steps = 400000;
  for (int i = 0; i <= steps; ++i) {
    const float x = static_cast<float>(low + (high - low) * i / steps);
    result = std::max(result, units(f(x), exact(static_cast<double>(x))));
  }
  return result;
}

// Tests every binade of floats, subnormals included, of both signs.
template <class F, class Exact> double worst_over_binades(const F& f, const Exact& exact) {
  double result = 0;
  for (int exponent = -149; exponent < 128; ++exponent) {
    for (int i = 0; i < 200; ++i) {
      const float x = static_cast<float>(std::ldexp(1 + i / 200.0, exponent));
      result =
          std::max({result, units(f(x), exact(static_cast<double>(x))), units(f(-x), exact(-static_cast<double>(x)))});
    }
  }
  return result;
}

float float_exp(float x) { return math::exp(x); }
float float_sigmoid(float x) { return math::sigmoid(x); }
float float_tanh(float x) { return math::tanh(x); }
double exact_exp(double x) { return std::exp(x); }
double exact_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double exact_tanh(double x) { return std::tanh(x); }

constexpr float infinity = std::numeric_limits<float>::infinity(),
                not_a_number = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("exp, sigmoid and tanh in float: units in the last place, subnormal results included") {
  CHECK(worst(-104, 89, float_exp, exact_exp) < 1.0);
  CHECK(worst(-1, 1, float_exp, exact_exp) < 1.0);
  CHECK(worst_over_binades(float_exp, exact_exp) < 1.0);
  CHECK(worst(-86, 30, float_sigmoid, exact_sigmoid) < 2.5);
  CHECK(worst(-2, 2, float_sigmoid, exact_sigmoid) < 2.5);
  CHECK(worst(-20, 20, float_tanh, exact_tanh) < 1.5);
  CHECK(worst(-1, 1, float_tanh, exact_tanh) < 1.5);
  CHECK(worst_over_binades(float_tanh, exact_tanh) < 1.5);
  struct Row {
    float (*f)(float);
    float x, y;
  };
  for (const Row& row :
      {Row{float_exp, 0, 1}, {float_exp, -infinity, 0}, {float_exp, infinity, infinity}, {float_exp, 200, infinity},
          {float_exp, -200, 0}, {float_sigmoid, 0, 0.5f}, {float_sigmoid, infinity, 1}, {float_sigmoid, -infinity, 0},
          {float_sigmoid, 17.4f, 1}, {float_tanh, 0, 0}, {float_tanh, infinity, 1}, {float_tanh, -infinity, -1}})
    CHECK_MESSAGE(row.f(row.x) == row.y, row.x);
  CHECK(math::exp(-103.0f) > 0.0f);
  CHECK(std::signbit(math::tanh(-0.0f)));
  for (const auto f : {float_exp, float_sigmoid, float_tanh}) CHECK(std::isnan(f(not_a_number)));
}

#include "examples/whence/cli/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace whence {
namespace {

// The continued fraction of I_x(a, b), by Lentz's method; converges fast for x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double tiny = 1e-300;
  const auto away_from_zero = [](double value) { return std::fabs(value) < tiny ? tiny : value; };
  double c = 1, d = 1 / away_from_zero(1 - (a + b) * x / (a + 1)), result = d;
  for (int m = 1; m < 500; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d), c = away_from_zero(1 + even / c);
    result *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d), c = away_from_zero(1 + odd / c);
    result *= d * c;
    if (std::fabs(d * c - 1) < 1e-15) break;
  }
  return result;
}

}  // namespace

Summary summary(const std::vector<double>& values) {
  Summary result{
      .count = static_cast<int>(values.size()), .mean = 0, .deviation = std::numeric_limits<double>::quiet_NaN()};
  const double count = static_cast<double>(values.size());
  for (const double value : values) result.mean += value / count;
  if (values.empty()) result.mean = result.deviation;
  if (values.size() < 2) return result;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.deviation = std::sqrt(squares / (count - 1));
  return result;
}

double Summary::standard_error() const { return deviation / std::sqrt(count); }

Median median(std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](double share) {  // linear between neighbours
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place), above = std::min(below + 1, values.size() - 1);
    return std::lerp(values[below], values[above], place - static_cast<double>(below));
  };
  return {at(0.5), (at(0.75) - at(0.25)) / 2};
}

double incomplete_beta(double a, double b, double x) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double welch_p_value(const Summary& a, const Summary& b) {
  if (a.count < 2 || b.count < 2) return std::numeric_limits<double>::quiet_NaN();
  const double of_x = a.deviation * a.deviation / a.count, of_y = b.deviation * b.deviation / b.count,
               both = of_x + of_y;
  if (both == 0) return std::numeric_limits<double>::quiet_NaN();  // no spread to weigh the difference by
  const double t = (a.mean - b.mean) / std::sqrt(both);
  const double freedom = both * both / (of_x * of_x / (a.count - 1) + of_y * of_y / (b.count - 1));
  return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t));  // P(|T| >= |t|)
}

}  // namespace whence

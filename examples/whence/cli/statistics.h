// Means and medians, their spreads, and whether two means differ: what a few seeds or repetitions can tell.
#pragma once

#include <vector>

namespace whence {

struct Summary {
  int count = 0;
  double mean = 0;       // nan of none
  double deviation = 0;  // of the sample, divided by count - 1; nan for fewer than two

  [[nodiscard]] double standard_error() const;  // of the mean
};
[[nodiscard]] Summary summary(const std::vector<double>& values);

// Of repetitions, some of which other programs disturb.
struct Median {
  double value = 0;
  double spread = 0;  // half of what lies between the quartiles
};
[[nodiscard]] Median median(std::vector<double> values);  // REQUIRES: at least one

// Welch's t-test (1947) of equal means, two-sided: the probability of means at least so far apart if there
// were no difference. nan where a side has fewer than two values, and where no value varies: then no
// spread measures the difference.
[[nodiscard]] double welch_p_value(const Summary& a, const Summary& b);

// I_x(a, b), the regularised incomplete beta function, for a, b > 0 and x in [0, 1].
[[nodiscard]] double incomplete_beta(double a, double b, double x);

}  // namespace whence

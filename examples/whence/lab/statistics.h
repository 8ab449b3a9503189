// Means, spreads, and whether two of them differ: what a few seeds can tell.
#pragma once

#include <vector>

namespace whence {

struct Summary {
  int count = 0;
  double mean = 0;
  double deviation = 0;  // of the sample, divided by count - 1; nan for fewer than two
};
[[nodiscard]] Summary summary(const std::vector<double>& values);

// Welch's t-test (1947) of equal means, two-sided: the probability of means at least so far apart if there
// were no difference. nan where a side has fewer than two values, and where no value varies: then no
// spread measures the difference.
[[nodiscard]] double welch_p_value(const std::vector<double>& a, const std::vector<double>& b);
[[nodiscard]] double welch_p_value_of(const Summary& a, const Summary& b);

// I_x(a, b), the regularised incomplete beta function, for a, b > 0 and x in [0, 1].
[[nodiscard]] double incomplete_beta(double a, double b, double x);

}  // namespace whence

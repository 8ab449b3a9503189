// Sines and cosines of positions, the basis of sinusoidal embeddings, rotations and Sandwich's bias.
//   w_m = base^(-2m/c), m = 0 ... c/2 - 1                                          Vaswani et al. 2017, section 3.5
#pragma once

#include <cmath>
#include <vector>

#include "tensor/shape.h"

namespace whence {

// w_m, in double for any dtype of the model
[[nodiscard]] inline double wave_frequency(index_t m, index_t c, double base) {
  return std::pow(base, -2 * static_cast<double>(m) / static_cast<double>(c));
}

// Returns PE[t, c] row by row: [sin(t w_0) ... cos(t w_0) ...], or [sin(t w_0), cos(t w_0), ...] if interleaved.
// REQUIRES: c is even
[[nodiscard]] inline std::vector<double> sinusoids(
    const std::vector<double>& positions, index_t c, double base, bool interleaved) {
  std::vector<double> table;
  for (const double t : positions) {
    for (index_t column = 0; column < c; ++column) {
      const double angle = t * wave_frequency(interleaved ? column / 2 : column % (c / 2), c, base);
      const bool is_sine = interleaved ? column % 2 == 0 : column < c / 2;
      table.push_back(is_sine ? std::sin(angle) : std::cos(angle));
    }
  }
  return table;
}

}  // namespace whence

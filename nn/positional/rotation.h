// What rotary schemes share: how fast each pair of dims turns, and the turning of queries and keys.  (RoPE, Su et al.
// 2021, section 3.2.2)
#pragma once

#include <vector>

#include "autograd/inspect/probe.h"
#include "autograd/ops.h"
#include "nn/positional/waves.h"
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence {

struct Rotation {
  index_t width = 0;         // dims that turn; even
  bool interleaved = false;  // pairs (2m, 2m + 1) instead of (m, m + width/2)
};

// theta_m = base^(-2m/width), m = 0 ... width/2 - 1
[[nodiscard]] inline std::vector<double> rotation_frequencies(index_t width, double base) {
  std::vector<double> theta;
  for (index_t m = 0; m < width / 2; ++m) theta.push_back(wave_frequency(m, width, base));
  return theta;
}

// t theta_m in f64: far positions stay apart whatever the model's dtype.
//   positions [t] or [b t];  theta [m], or [1|b 1 1 m] where sequences differ   ->   [t m] or [1|b 1 t m]
[[nodiscard]] inline Tensor rotation_angles(const Tensor& positions, const Tensor& theta, Site site = Site::current()) {
  const Shape column = positions.rank() == 1 ? Shape{-1, 1} : Shape{positions.size(0), 1, -1, 1};
  return multiply(reshape(positions, column, site), theta, site);
}

// InputError: two rotations in turn are one by the sum of their angles, not two sources of positions.
inline void require_one_rotation(const char* scheme, const Stages& stages) {
  if (stages.rotates.size() < 2) return;
  throw InputError(
      scheme, ": given beside another scheme that rotates; their angles only add up; leave one of them out");
}

// The options that say which dims turn, and how they are read; InputError for a width that is odd or above a head's.
inline std::vector<SchemeOption> rotation_options(double least_base = 1) {
  return {option::number("base", 10000, {least_base, 1e12}, "the slowest pair turns once in about 2 pi base positions"),
      option::words("layout", {"half", "interleaved"}, "which dims make a pair"),
      option::integer("width", 0, {0, 65536}, "dims that rotate, an even number; 0: all of a head")};
}

[[nodiscard]] inline Rotation rotation_of(const SchemeArguments& arguments) {
  const index_t head_dim = arguments.sizes().head_dim(), given = arguments.integer("width"),
                width = given ? given : head_dim;
  if (width % 2 || width > head_dim) {
    throw InputError(arguments.spec().info().name, ": width ", width, " for heads of ", head_dim,
        " dims; an even width of at most ", head_dim, " required");
  }
  return {width, arguments.word("layout") == "interleaved"};
}

}  // namespace whence

// Shared by the tests of tiled attention: random operands, an op's results, and their comparison with exact ones.
#pragma once

#include <cmath>

#include "autograd/backward.h"
#include "tests/support/device.h"

namespace whence::test {

inline Tensor drawn(const Shape& shape, DType dtype, const char* purpose, double deviation = 1) {
  return raw::cast(Tensor::normal(shape, 0, deviation, Stream(1, purpose), DType::f64), dtype);
}

// bool [batch, keys]: in sequence 0 the keys [first, end) are present, in others all.
inline Tensor present_from(index_t batch, index_t keys, index_t first, index_t end) {
  std::vector<double> present(static_cast<std::size_t>(batch * keys), 1.0);
  for (index_t j = 0; j < keys; ++j) present[static_cast<std::size_t>(j)] = j >= first && j < end;
  return Tensor::of(present, {batch, keys}, DType::boolean);
}

// Returns the output of op(operands), and the gradients of all operands by a cotangent.
template <class Operands, class Op>
std::vector<Tensor> output_and_gradients(const Operands& x, const Tensor& cotangent, const Op& op) {
  Operands leaves;
  std::vector<Tensor> asked;
  for (std::size_t k = 0; k < x.size(); ++k)
    if (x[k].defined()) asked.push_back(leaves[k] = requires_grad(x[k].detach()));
  const Tensor output = op(leaves);
  std::vector<Tensor> all = grad(output, cotangent, asked);
  all.insert(all.begin(), output.detach());
  return all;
}

// CHECKs that each of `found` is within `allowed` times the largest number of its exact one, or times 1, and has the
// bits of `before`, unless `before` is empty. Then `before` becomes `found`.
inline void compare(const std::vector<Tensor>& found, const std::vector<Tensor>& exact, double allowed,
    std::vector<std::vector<double>>& before) {
  std::vector<std::vector<double>> numbers;
  for (std::size_t n = 0; n < exact.size(); ++n) {
    CAPTURE(n);
    numbers.push_back(raw::to_device(found[n], Device::cpu()).to_vector());
    double largest = 1, apart = 0;
    const std::vector<double> wanted = exact[n].to_vector();
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      largest = std::max(largest, std::fabs(wanted[k]));
      apart = std::max(apart, std::isnan(numbers[n][k]) ? INFINITY : std::fabs(wanted[k] - numbers[n][k]));
    }
    CHECK(apart < allowed * largest);
  }
  if (!before.empty()) CHECK(numbers == before);
  before = numbers;
}

}  // namespace whence::test

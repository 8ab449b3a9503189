#include "examples/whence/verify/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/backward.h"
#include "tensor/raw.h"

namespace whence {

double largest_difference(const Tensor& a, const Tensor& b) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (!a.defined() || !b.defined() || !(a.shape() == b.shape())) return infinity;
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i]) continue;  // equal infinities too
    const double apart = std::fabs(x[i] - y[i]);
    largest = std::isnan(apart) ? infinity : std::max(largest, apart);
  }
  return largest;
}

double largest_size(const Tensor& x) { return largest_difference(x, Tensor::zeros(x.shape())); }

std::vector<Tensor> leaves_of(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.defined() ? input.detach() : input);
    if (input.defined() && is_floating(input.dtype())) requires_grad(leaves.back());
  }
  return leaves;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return false;
  const Tensor x = raw::contiguous(a), y = raw::contiguous(b);
  return std::equal(x.bytes(), x.bytes() + static_cast<std::size_t>(x.numel()) * size_of(x.dtype()), y.bytes());
}

bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) { return same_bits(x, y); });
}

}  // namespace whence

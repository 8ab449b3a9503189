#include "autograd/inspect/curvature.h"

#include <algorithm>
#include <cmath>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

Tensor or_zeros(const Tensor& gradient, const Tensor& like) {
  return gradient.defined() ? gradient : Tensor::zeros(like.shape(), like.dtype(), like.device());
}

double inner_product(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double total = 0;
  for (std::size_t k = 0; k < a.size(); ++k)
    total += raw::reduce(Reduction::sum, raw::binary("dot", functions::Multiply{}, a[k], b[k]), {}, false).item();
  return total;
}

void scale(std::vector<Tensor>& v, double factor) {
  for (Tensor& each : v) each = raw::unary(functions::Affine{}, each, {factor, 0});
}

}  // namespace

Hessian::Hessian(const Tensor& loss, std::vector<Tensor> inputs, Site site) : inputs_(std::move(inputs)) {
  gradient_ = grad(loss, {}, inputs_, {.create_graph = true, .allow_unused = true}, site);
  for (std::size_t k = 0; k < inputs_.size(); ++k) gradient_[k] = or_zeros(gradient_[k], inputs_[k]);
}

std::vector<Tensor> Hessian::times(const std::vector<Tensor>& v, Site site) const {
  const CallSite place(site);
  if (v.size() != inputs_.size())
    fail("hessian", v.size(), " tensors given; ", inputs_.size(), " required, one for each input");
  const RecordingScope record(true);
  Tensor slope = Tensor::scalar(0, gradient_.empty() ? DType::f64 : gradient_[0].dtype(),
      gradient_.empty() ? Device{} : gradient_[0].device());  // along v
  for (std::size_t k = 0; k < v.size(); ++k) {
    raw::require_shape("hessian", "v", v[k], inputs_[k].shape());
    slope = sum(gradient_[k] * v[k]) + slope;
  }
  std::vector<Tensor> found(v.size());
  if (tracked(slope)) found = grad(slope, {}, inputs_, {.allow_unused = true});
  for (std::size_t k = 0; k < v.size(); ++k) found[k] = or_zeros(found[k], inputs_[k]);
  return found;
}

Hessian::Eigenvalue Hessian::largest(double tolerance, int most, std::uint64_t seed) const {
  Eigenvalue found{0, 0, 0, {}};
  for (std::size_t k = 0; k < inputs_.size(); ++k) {
    const Tensor drawn = Tensor::normal(inputs_[k].shape(), 0, 1, Stream(seed, "power iteration", k));
    found.vector.push_back(raw::to_device(raw::cast(drawn, inputs_[k].dtype()), inputs_[k].device()));
  }
  while (found.iterations < most) {
    scale(found.vector, 1 / std::sqrt(inner_product(found.vector, found.vector)));
    std::vector<Tensor> product = times(found.vector);
    ++found.iterations;
    found.value = inner_product(found.vector, product);
    const double size = inner_product(product, product);  // |H v|^2 = value^2 + residual part
    found.residual = std::sqrt(std::max(0.0, size - found.value * found.value)) / std::abs(found.value);
    if (size == 0 || found.residual < tolerance || found.iterations == most) break;  // value and residual are of this v
    found.vector = std::move(product);
  }
  return found;
}

}  // namespace whence

#include "nn/layers/norm.h"

#include <cmath>

#include "autograd/observer.h"

namespace whence {

Norm::Norm(index_t dim, NormKind kind, double epsilon) : kind_(kind), epsilon_(epsilon) {
  if (dim < 1) fail("Norm", "dim ", dim, " given; 1 or more required");
  if (!(epsilon > 0) || !std::isfinite(epsilon))
    fail("Norm", "epsilon ", epsilon, " given; a finite number above 0 required");
  weight_ = param("weight", {dim}, Init::ones(), false);
  if (kind == NormKind::layer) bias_ = param("bias", {dim}, Init::zeros(), false);
}

Tensor Norm::operator()(const Tensor& x, Site site) const {
  const Scope scope(path());
  return kind_ == NormKind::layer ? layer_norm(x, weight_, bias_, epsilon_, site)
                                  : rms_norm(x, weight_, epsilon_, site);
}

SumAndNorm Norm::of_sum(const Tensor& x, const Tensor& added, Site site) const {
  if (x.device().is_gpu()) {
    const Scope scope(path());
    return add_norm(x, added, weight_, bias_, epsilon_, site);
  }
  const Tensor sum = add(x, added, site);
  return {sum, (*this)(sum, site)};
}

}  // namespace whence

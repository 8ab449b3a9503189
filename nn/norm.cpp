// Layer normalisation.
#include "nn/norm.h"

#include <cmath>

#include "autograd/ops.h"

namespace whence {

LayerNorm::LayerNorm(index_t dim, double epsilon) : epsilon_(epsilon) {
  if (dim < 1) fail("LayerNorm", concat("dim ", dim, " given; 1 or more required"));
  if (!(epsilon > 0) || !std::isfinite(epsilon)) fail("LayerNorm", concat("epsilon ", epsilon, " given; a finite number above 0 required"));
  weight_ = param("weight", {dim}, Init::ones(), false);
  bias_ = param("bias", {dim}, Init::zeros(), false);
}

Tensor LayerNorm::operator()(const Tensor& x, Site at) const { return layer_norm(x, weight_, bias_, epsilon_, at); }

}  // namespace whence

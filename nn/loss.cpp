// Losses besides cross_entropy.
#include "nn/loss.h"

#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {

Tensor mean_squared_error(const Tensor& x, const Tensor& target, Site at) {
  const CallSite place(at);
  raw::require_shape("mean_squared_error", "target", target, x.shape());
  raw::require_same_dtype("mean_squared_error", x, target);
  if (x.numel() == 0) fail("mean_squared_error", concat("shape ", x.shape(), " given; at least one element required"));
  return mean(square(subtract(x, target, at), at), {}, false, at);
}

}  // namespace whence

#include "nn/layers/loss.h"

#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {

Tensor token_loss(const Tensor& logits, const Tensor& target, index_t ignored, Site at) {
  return cross_entropy(logits, raw::to_device(target, logits.device()), ignored, at);
}

Tensor token_loss_sum(const Tensor& logits, const Tensor& target, index_t ignored, Site at) {
  return cross_entropy_sum(logits, raw::to_device(target, logits.device()), ignored, at);
}

Tensor mean_squared_error(const Tensor& x, const Tensor& target, Site at) {
  const CallSite place(at);
  raw::require_shape("mean_squared_error", "target", target, x.shape());
  raw::require_same_dtype("mean_squared_error", "x", x, "target", target);
  if (x.numel() == 0) fail("mean_squared_error", "shape ", x.shape(), " given; at least one element required");
  return mean(square(subtract(x, target, at), at), {}, false, at);
}

}  // namespace whence

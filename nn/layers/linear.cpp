#include "nn/layers/linear.h"

#include "autograd/observer.h"
#include "autograd/ops.h"

namespace whence {

Linear::Linear(index_t inputs, index_t outputs, bool bias, Init init, Init bias_init) {
  if (inputs < 1 || outputs < 1)
    fail("Linear", inputs, " inputs and ", outputs, " outputs given; 1 or more of each required");
  weight_ = param("weight", {outputs, inputs}, init);
  if (bias) bias_ = param("bias", {outputs}, bias_init, false);
}

Tensor Linear::operator()(const Tensor& x, Site site) const {
  const Scope scope(path());
  return linear(x, weight_, bias_, site);
}

}  // namespace whence

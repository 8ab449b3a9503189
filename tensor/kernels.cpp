#include "tensor/kernels.h"

#include "tensor/backend.h"

namespace whence {

Kernels& plain_kernels() {
  static Kernels plain;
  return plain;
}

Kernels& kernels(Device device) { return *backend_of(device).kernels; }
Kernels& kernels(const Tensor& x) {
  return x.dtype() == DType::dual && !x.device().is_planned() ? plain_kernels() : kernels(x.device());
}

}  // namespace whence

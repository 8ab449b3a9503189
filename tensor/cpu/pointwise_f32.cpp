// Unary and binary functions in float, for tensors of f16, bf16 and f32.
#include "tensor/cpu/pointwise_loops.h"

namespace whence {

template struct PointwiseLoops<float>;

}  // namespace whence

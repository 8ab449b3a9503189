// Unary and binary functions in double, for tensors of f64.
#include "tensor/cpu/pointwise_loops.h"

namespace whence {

template struct PointwiseLoops<double>;

}  // namespace whence

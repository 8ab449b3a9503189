// Unary and binary functions in Dual, for tensors of dual.
#include "tensor/cpu/pointwise_loops.h"

namespace whence {

template struct PointwiseLoops<Dual>;

}  // namespace whence

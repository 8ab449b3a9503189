// Unary and binary functions of contiguous operands in f64.
#include "cuda/kernels/pointwise_packs.h"

namespace whence::gpu {

template struct Contiguous<double>;

}  // namespace whence::gpu

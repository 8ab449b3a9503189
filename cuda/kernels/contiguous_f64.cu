// Unary and binary functions of contiguous operands in f64.
#include "cuda/kernels/contiguous_kernels.h"

namespace whence::gpu {

template struct Contiguous<double>;

}  // namespace whence::gpu

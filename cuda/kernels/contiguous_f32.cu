// Unary and binary functions of contiguous operands in f32.
#include "cuda/kernels/contiguous_kernels.h"

namespace whence::gpu {

template struct Contiguous<float>;

}  // namespace whence::gpu

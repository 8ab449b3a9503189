// Unary and binary functions of contiguous operands in f32.
#include "cuda/kernels/pointwise_packs.h"

namespace whence::gpu {

template struct Contiguous<float>;

}  // namespace whence::gpu

// Unary and binary functions of contiguous operands in f16.
#include "cuda/kernels/pointwise_packs.h"

namespace whence::gpu {

template struct Contiguous<Float16>;

}  // namespace whence::gpu

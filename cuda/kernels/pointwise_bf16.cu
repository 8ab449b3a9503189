// Unary and binary functions of contiguous operands in bf16.
#include "cuda/kernels/pointwise_packs.h"

namespace whence::gpu {

template struct Contiguous<BFloat16>;

}  // namespace whence::gpu

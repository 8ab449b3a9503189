// Unary and binary functions of contiguous operands in f16 and bf16.
#include "cuda/kernels/pointwise_packs.h"

template struct whence::gpu::Contiguous<whence::Float16>;
template struct whence::gpu::Contiguous<whence::BFloat16>;

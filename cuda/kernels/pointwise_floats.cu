// Unary and binary functions of contiguous operands in f32 and f64.
#include "cuda/kernels/pointwise_packs.h"

template struct whence::gpu::Contiguous<float>;
template struct whence::gpu::Contiguous<double>;

#include "tensor/device/joined_kernels.h"

#include <limits>

#include "tensor/error.h"

namespace whence {

std::size_t JoinedKernels::most_shared_bytes(DType dtype) const {
  return fits_float(dtype) ? std::numeric_limits<std::size_t>::max() : 0;
}

static void refuse_tiles(const char* op, std::span<const Tensor> x) {
  fail(op, to_string(x[0].device()), " given, which has no tiles; the cpu or a GPU required");
}
void JoinedKernels::attention(
    const TiledCall&, std::span<const Tensor> x, const Tensor&, const Tensor&, const Tensor&) {
  refuse_tiles("tiled_attention", x);
}
void JoinedKernels::attention_backward(const TiledCall& at, std::span<const Tensor> x, const Tensor&, const Tensor&,
    const Tensor&, const Tensor&, const Tensor&, std::span<const Tensor>) {
  attention(at, x, {}, {}, {});
}
void JoinedKernels::mix(const TiledCall&, std::span<const Tensor> x, const Tensor&, const Tensor&) {
  refuse_tiles("tiled_mix", x);
}
void JoinedKernels::mix_backward(const TiledCall& at, std::span<const Tensor> x, const Tensor&, const Tensor&,
    const Tensor&, std::span<const Tensor>) {
  mix(at, x, {}, {});
}

}  // namespace whence

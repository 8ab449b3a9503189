// What the tile programs compute, as ops of all pairs: the gradient of attention in tiles as a function, which can be
// differentiated again (create_graph), is that of this form.
#pragma once

#include "autograd/tiled_attention.h"

namespace whence::tiled {

// y [b h i c+bins]: the output, and beside it the sums by distance.
[[nodiscard]] Tensor composed_form(const TiledAttention& at, const TiledAttention::Operands& operands);
[[nodiscard]] Tensor composed_form(const TiledMix& at, const TiledMix::Operands& operands);

}  // namespace whence::tiled

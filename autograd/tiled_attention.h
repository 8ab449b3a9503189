// Attention in tiles as ops (ops/tiled_attention.cpp, tiled_mix.cpp): no [i j] tensor is made, in neither direction.
#pragma once

#include <string>

#include "tensor/tiled_attention.h"
#include "tensor/tiled_mix.h"

namespace whence {

struct TiledResult {
  Tensor output;    // [b h i c], c dims of a value
  Tensor bin_sums;  // [b h i bins], undefined where at.bins is 0
};
// Why the programs that these operands ask for do not go together, as an error says it; empty where they do.
[[nodiscard]] std::string tiled_refusal(const TiledAttention& at, const TiledAttention::Operands& operands);
// What is computed: tensor/tiled_attention.h. f32, f64, or 16 bits, which are widened to f32 and rounded once; on the
// CPU or the planned one. Error on a GPU, when operands do not fit each other, or where tiled_refusal has a reason.
[[nodiscard]] TiledResult tiled_attention(
    const TiledAttention& at, const TiledAttention::Operands& operands, Site site = Site::current());
// The head mix, [b h i c]: tensor/tiled_mix.h. Dtypes, devices and Errors likewise.
[[nodiscard]] Tensor tiled_mix(const TiledMix& at, const TiledMix::Operands& operands, Site site = Site::current());

}  // namespace whence

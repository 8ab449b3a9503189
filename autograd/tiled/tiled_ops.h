// Attention in tiles as ops (tiled_attention.cpp, tiled_mix.cpp): no [i j] tensor is made, in neither direction.
#pragma once

#include <string>

#include "tensor/tiles/attention_kernel.h"
#include "tensor/tiles/mix_kernel.h"

namespace whence {

struct TiledResult {
  Tensor output;    // [b h i c], c dims of a value
  Tensor bin_sums;  // [b h i bins], undefined where at.bins is 0
};
// Why what is given does not go together in this op, TiledOperands::attention or mix: "what is given; what is required";
// empty where it does. REQUIRES: query [b h i d]
[[nodiscard]] std::string tiled_refusal(
    TiledOperands::Ops op, const TiledFacts& at, const TiledFacts::Operands& operands);
// The equations are in tensor/tiles/attention_kernel.h. f32, f64, or 16 bits, which the CPU widens to f32 and rounds once;
// beside 16 bits what is not by rows, as tables, may be f32.
// Error when operands do not fit each other, or where tiled_refusal has a reason, or on a GPU gpu_refusal.
[[nodiscard]] TiledResult tiled_attention(
    const TiledAttention& at, const TiledAttention::Operands& operands, Site site = Site::current());
// The head mix, [b h i c]: tensor/tiles/mix_kernel.h. Dtypes, devices and Errors likewise.
[[nodiscard]] Tensor tiled_mix(const TiledMix& at, const TiledMix::Operands& operands, Site site = Site::current());

}  // namespace whence

// Attention in tiles as ops: no [i j] tensor is allocated in either direction.
#pragma once

#include <string>

#include "tensor/tiled_call.h"

namespace whence {

struct TiledResult {
  Tensor output;    // [b h i c], c dims of a value
  Tensor bin_sums;  // [b h i bins], undefined if at.bins is 0
};
// Returns why the operands do not go together in this call: "what is given; what is required"; empty if they do.
// REQUIRES: query [b h i d]
[[nodiscard]] std::string tiled_refusal(const TiledCall& at, const TiledCall::Operands& operands);
// tensor/tiled_call.h has the equations. f32, f64, or 16 bits, which the CPU widens to f32 and rounds once.
// With 16-bit rows, other operands such as tables may be f32. Error if operands do not fit each other, if tiled_refusal
// gives a reason, or on a GPU if gpu_refusal does.
[[nodiscard]] TiledResult tiled_attention(
    const TiledCall& at, const TiledCall::Operands& operands, Site site = Site::current());
// The head mix, [b h i c]: tensor/tiled_call.h. The same dtypes, devices and Errors.
[[nodiscard]] Tensor tiled_mix(const TiledCall& at, const TiledCall::Operands& operands, Site site = Site::current());

}  // namespace whence

// Fading: a key loses weight with every token between it and the query. Each token sets its part once for all queries:
//   A_ij = S_ij + g_i (c_i - c_j),  c_t = sum_{l<=t} of a number <= 0 that token l makes, for each head;  g_i >= 0, or 1
// Base of `forgetting` and `cable`.
#pragma once

#include "autograd/ops.h"
#include "nn/attention/tile_terms.h"
#include "nn/scheme.h"

namespace whence {

// Running sums whose differences are used. Over many tokens f32 would lose the difference between neighbours.
// y_t = sum_{l<=t} x_l along an axis, in f64 (a dual stays dual). Sums stay wide until their difference is computed.
[[nodiscard]] inline Tensor running_sum(const Tensor& x, int axis, Site site = Site::current()) {
  return cumulative_sum(cast(x, DType::f64, site), axis, site);
}

class Fading : public PositionalScheme, public BiasesScores, public RunsInTiles {
 public:
  Claims claims() const override {
    return {.causal_only = true, .shift_invariant = true, .uses_positions = false, .reads_x = true};
  }
  Tensor bias(const AttendContext& context) const override;  // [b h i j]
  void add_to_tiles(TileTerms& terms, const AttendContext& context) const override;

 private:
  // Returns c, [b h j], as a running sum; padding adds nothing.
  [[nodiscard]] virtual Tensor sums(const AttendContext& context) const = 0;
  // Returns g, [b h i], in the accumulation type; undefined: 1.
  [[nodiscard]] virtual Tensor slopes(const AttendContext&) const { return {}; }
};

}  // namespace whence

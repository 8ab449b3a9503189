// Keys that fade by what every token between them and the query takes off, where a token says that once for all queries:
//   A_ij = S_ij + g_i (c_i - c_j),  c_t = sum_{l<=t} of a number <= 0 that token l makes, for each head;  g_i >= 0, or 1
// Of `forgetting` and `cable`.
#pragma once

#include "nn/attention/tile_terms.h"
#include "nn/scheme.h"

namespace whence {

class Fading : public PositionalScheme, public BiasesScores, public RunsInTiles {
 public:
  Claims claims() const override { return {.causal_only = true, .shift_invariant = true, .uses_positions = false}; }
  Tensor bias(const AttendContext& context) const override;  // [b h i j]
  void add_to_tiles(TileTerms& terms, const AttendContext& context) const override;

 private:
  // c, [b h j], as running_sum.h makes it; padding takes nothing off.
  [[nodiscard]] virtual Tensor sums(const AttendContext& context) const = 0;
  // g, [b h i], in the type that sums are made in; undefined: 1
  [[nodiscard]] virtual Tensor slopes(const AttendContext&) const { return {}; }
};

}  // namespace whence

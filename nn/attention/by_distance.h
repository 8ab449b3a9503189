// Biases that depend only on the distance of a pair. A scheme defines one table, a number for each head and distance.
// All forms of attention read it: the reference by an op, tiles by their program, a GPU's fused softmax directly, and
// DAPE's networks if it is the bias that they adapt.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/attention/distances.h"
#include "nn/attention/stages.h"
#include "nn/attention/tile_terms.h"
#include "nn/scheme.h"

namespace whence {

struct ReadsByDistance : BiasesScores, RunsInTiles {
  // Returns the table [h n] for distances [n] (f64, on the CPU), on the scores' device and in context.dtype(). Returns
  // nothing if the bias of this call does not depend on the distance alone; such a scheme overrides `bias`.
  [[nodiscard]] virtual std::optional<Tensor> table(const Tensor& distances, const AttendContext& context) const = 0;

  [[nodiscard]] Tensor bias(const AttendContext& context) const override;
  void add_to_tiles(TileTerms& terms, const AttendContext& context) const override;

  // Describes the bias in a registration.
  static ProbeInfo bias_probe(std::string equation) {
    return {"bias", "b h i j", "the distance's term of the logit", std::move(equation)};
  }
};

}  // namespace whence

// Biases that depend on the distance of a pair and on nothing else. A scheme says what one table holds, a number for
// each head and distance; all forms of attention read it: the reference by an op, tiles by their program, the softmax
// of a GPU by itself, and DAPE's networks where it is the bias that they adapt.
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
  // [h n], beside the scores, in context.dtype(): of distances [n] f64 on the CPU. Nothing where the bias of this call
  // depends on more than the distance; such a scheme has a `bias` of its own.
  [[nodiscard]] virtual std::optional<Tensor> table(const Tensor& distances, const AttendContext& context) const = 0;

  [[nodiscard]] Tensor bias(const AttendContext& context) const override;
  void add_to_tiles(TileTerms& terms, const AttendContext& context) const override;

  // How a registration says what its bias is.
  static ProbeInfo bias_probe(std::string equation) {
    return {"bias", "b h i j", "what the distance adds to the logit", std::move(equation)};
  }
};

}  // namespace whence

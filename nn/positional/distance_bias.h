// A bias that depends on the distance of a pair and on nothing else: one row of numbers per distance, read by all
// pairs. A scheme says what the row of a distance is; both forms of attention follow.
#pragma once

#include "nn/attention/tiles.h"
#include "nn/positional/distances.h"
#include "nn/scheme.h"

namespace whence {

// A number for each head and each of the steps: what the pairs read.
struct DistanceTable {
  PairSteps steps;
  Tensor values;  // [h n]
};

class DistanceBias : public PositionalScheme, public BiasesScores, public RunsInTiles {
 public:
  // [1|b h i j], read from one number per head and distance
  Tensor bias(const AttendContext& at) const final;
  bool add_to_tiles(TileTerms& terms, const AttendContext& at) const final;
  // What `bias` reads; nothing where positions are not whole, or are farther apart than pairs are many.
  [[nodiscard]] std::optional<DistanceTable> table(const AttendContext& at) const;

  // How a registration says what its bias is.
  static ProbeInfo bias_probe(std::string equation) {
    return {"bias", "b h i j", ProbeInfo::Scale::diverging, "what the distance adds to the logit", std::move(equation)};
  }

 protected:
  // [n h], beside the scores, of distances [n] f64 on the CPU
  [[nodiscard]] virtual Tensor of_distances(const Tensor& distances, const AttendContext& at) const = 0;
};

}  // namespace whence

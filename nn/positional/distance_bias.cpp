#include "nn/positional/distance_bias.h"

#include "autograd/probe.h"

namespace whence {

Tensor DistanceBias::bias(const AttendContext& at) const {
  const DistinctDistances distances = distinct_distances(at);
  return probe("bias", cast(bias_from_rows(of_distances(distances.values, at), distances.index), at.dtype()));
}

bool DistanceBias::add_to_tiles(TileTerms& terms, const AttendContext& at) const {
  const std::optional<DistanceSteps> steps = distance_steps(at);
  return steps && terms.add_by_distance(*steps, cast(transpose(of_distances(steps->values, at)), at.dtype()));
}

}  // namespace whence

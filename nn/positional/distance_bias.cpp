#include "nn/positional/distance_bias.h"

#include "autograd/inspect/probe.h"

namespace whence {

Tensor DistanceBias::bias(const AttendContext& at) const {
  const PairDistances distances = pair_distances(at);
  return probe("bias", distances.read(cast(transpose(of_distances(distances.values, at)), at.dtype())));
}

std::optional<DistanceTable> DistanceBias::table(const AttendContext& at) const {
  const PairDistances distances = pair_distances(at);
  if (!distances.steps) return std::nullopt;
  return DistanceTable{*distances.steps, cast(transpose(of_distances(distances.values, at)), at.dtype())};
}

bool DistanceBias::add_to_tiles(TileTerms& terms, const AttendContext& at) const {
  const std::optional<DistanceSteps> steps = distance_steps(at);
  return steps && terms.add_by_distance(*steps, cast(transpose(of_distances(steps->values, at)), at.dtype()));
}

}  // namespace whence

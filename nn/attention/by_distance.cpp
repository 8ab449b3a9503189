#include "nn/attention/by_distance.h"

#include "autograd/inspect/probe.h"
#include "autograd/ops.h"

namespace whence {

Tensor ReadsByDistance::bias(const AttendContext& context) const {
  const Distances distances = distances_of(context);
  return probe("bias", distances.read(table(distances.values, context).value()));
}

bool ReadsByDistance::add_to_tiles(TileTerms& terms, const AttendContext& context) const {
  const std::optional<Distances> distances = whole_distances(context);
  if (!distances) return false;
  const std::optional<Tensor> numbers = table(distances->values, context);
  return numbers && terms.add_by_distance(*distances, *numbers);
}

}  // namespace whence

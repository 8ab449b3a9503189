#include "nn/attention/by_distance.h"

#include "autograd/observer.h"
#include "autograd/ops.h"

namespace whence {

Tensor ReadsByDistance::bias(const AttendContext& context) const {
  const Distances distances = distances_of(context);
  return probe("bias", distances.read(table(distances.values, context).value()));
}

void ReadsByDistance::add_to_tiles(TileTerms& terms, const AttendContext& context) const {
  const Distances* const distances = terms.read(whole_distances(context));
  if (!distances) return;
  if (const std::optional<Tensor> numbers = table(distances->values, context))
    terms.add(TiledOperands::distance_table, *numbers);
  else
    terms.refuse("a bias that depends on more than the distance given; one number for each distance required");
}

}  // namespace whence

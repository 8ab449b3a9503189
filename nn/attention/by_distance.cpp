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

std::optional<BiasTable> table_of(const std::vector<StageOf<BiasesScores>>& biases, const AttendContext& context) {
  std::optional<BiasTable> sum;
  for (const auto& stage : biases) {
    const auto* scheme = dynamic_cast<const ReadsByDistance*>(stage.scheme);
    if (!scheme) return std::nullopt;
    const StageScope scope(*stage.path);
    const AttendContext moved = stage.at(context);
    const std::optional<Distances> distances = whole_distances(moved);
    if (!distances || (sum && !distances->reads_as(sum->distances))) return std::nullopt;
    const std::optional<Tensor> numbers = scheme->table(distances->values, moved);
    if (!numbers) return std::nullopt;
    sum = BiasTable{*distances, sum ? sum->table + *numbers : *numbers};
  }
  return sum;
}

}  // namespace whence

#include "nn/attention/position.h"

#include "nn/attention/tiles.h"

#include "tensor/error.h"

namespace whence {
namespace {

template <class Interface> void enter_stage(std::vector<StageOf<Interface>>& stage, const PositionalScheme& scheme) {
  if (const auto* part = dynamic_cast<const Interface*>(&scheme)) stage.push_back({part, &scheme.path()});
}

template <class Interface>
void enter_moved_stage(
    std::vector<StageOf<Interface>>& stage, const std::vector<StageOf<Interface>>& inner, const MovesPositions& mover) {
  for (StageOf<Interface> part : inner) {
    part.movers.insert(part.movers.begin(), &mover);
    stage.push_back(std::move(part));
  }
}

}  // namespace

std::string StageScope::within(const std::string& path) {
  if (!detail::scope_path || detail::scope_path->empty()) return {};
  const std::string here = *detail::scope_path + ".";
  return path.starts_with(here) ? std::string() : here + "shared." + path;
}

void PositionalScheme::join(Stages& stages) const { stages.enter(*this); }

void Stages::enter(const PositionalScheme& scheme) {
  enter_stage(embeds, scheme);
  enter_stage(rotates, scheme);
  enter_stage(biases, scheme);
  enter_stage(transforms, scheme);
  enter_stage(maps, scheme);
  enter_stage(patterns, scheme);
  enter_stage(mixes, scheme);
  enter_stage(tiled, scheme);
}

void Stages::enter_moved(const Stages& inner, const MovesPositions& mover) {
  enter_moved_stage(embeds, inner.embeds, mover);
  enter_moved_stage(rotates, inner.rotates, mover);
  enter_moved_stage(biases, inner.biases, mover);
  enter_moved_stage(transforms, inner.transforms, mover);
  enter_moved_stage(maps, inner.maps, mover);
  enter_moved_stage(patterns, inner.patterns, mover);
  enter_moved_stage(mixes, inner.mixes, mover);
  enter_moved_stage(tiled, inner.tiled, mover);
}

Stages Stages::of(const std::vector<const PositionalScheme*>& schemes) {
  Stages stages;
  stages.schemes = schemes;
  for (const PositionalScheme* scheme : schemes) scheme->join(stages);
  if (stages.patterns.size() > 1)
    throw InputError("schemes: two that stand for the softmax given; at most one has a meaning; leave one out");
  for (const PositionalScheme* scheme : schemes) scheme->check_company(stages);
  return stages;
}

}  // namespace whence

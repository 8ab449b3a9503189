#include "nn/attention/stages.h"

#include "nn/attention/tile_terms.h"
#include "tensor/error.h"

namespace whence {
namespace {

// Calls visit(list...) for each stage, with its lists.
template <class Visit, class... S> void for_each_stage(const Visit& visit, S&... stages) {
  visit(stages.embeds...);
  visit(stages.rotates...);
  visit(stages.scores...);
  visit(stages.biases...);
  visit(stages.transforms...);
  visit(stages.maps...);
  visit(stages.patterns...);
  visit(stages.mixes...);
  visit(stages.outputs...);
  visit(stages.tiled...);
}

}  // namespace

std::string StageScope::within(const std::string& path) {
  if (!detail::scope_path || detail::scope_path->empty()) return {};
  const std::string here = *detail::scope_path + ".";
  return path.starts_with(here) ? std::string() : here + "shared." + path;
}

void PositionalScheme::join(Stages& stages) const { stages.enter(*this); }

void Stages::enter(const PositionalScheme& scheme) {
  const auto enter_one = [&]<class Interface>(std::vector<StageOf<Interface>>& stage) {
    if (const auto* part = dynamic_cast<const Interface*>(&scheme)) stage.push_back({part, &scheme.path()});
  };
  for_each_stage(enter_one, *this);
}

void Stages::enter_moved(const Stages& inner, const MovesPositions& mover) {
  const auto enter_one = [&](auto& stage, const auto& of_inner) {
    for (auto part : of_inner) {
      part.movers.insert(part.movers.begin(), &mover);
      stage.push_back(std::move(part));
    }
  };
  for_each_stage(enter_one, *this, inner);
  see_within(inner.window);
}

Stages Stages::of(const std::vector<const PositionalScheme*>& schemes) {
  Stages stages;
  stages.schemes = schemes;
  for (const PositionalScheme* scheme : schemes) scheme->join(stages);
  if (stages.patterns.size() > 1)
    throw InputError("schemes: two schemes that replace the softmax given; at most one required; leave one out");
  if (stages.scores.size() > 1)
    throw InputError(
        "schemes: two schemes that replace the product of queries and keys given; at most one required; leave one out");
  for (const PositionalScheme* scheme : schemes) scheme->check_company(stages);
  return stages;
}

}  // namespace whence

// Positions, the mask as schemes see it, and the sorting of schemes into stages.
#include "nn/position.h"

#include "autograd/ops.h"

namespace whence {

Positions Positions::range(index_t length) {
  const Tensor positions = Tensor::arange(length, DType::f64);
  return {positions, positions};
}

Tensor AttendContext::keep(const Tensor& t, double otherwise, Site at) const {
  return mask.defined() ? whence::keep(t, mask, otherwise, at) : t;
}

template <class Interface>
static void add_to(std::vector<StageOf<Interface>>& stage, const PositionalScheme& scheme) {
  if (const auto* part = dynamic_cast<const Interface*>(&scheme)) stage.push_back({part, &scheme.path()});
}

void Stages::add(const PositionalScheme& scheme) {
  add_to(rotates, scheme);
  add_to(biases, scheme);
  add_to(transforms, scheme);
  add_to(maps, scheme);
  add_to(mixes, scheme);
}

}  // namespace whence

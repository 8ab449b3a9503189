#include "examples/whence/look/axes.h"

#include <functional>
#include <numeric>

namespace whence::look {

Axes::Axes(const Quantity& quantity) {
  const std::string& axes = quantity.probe->axes;
  for (std::size_t axis = 0; axis < axes.size(); axis += 2) letters += axes[axis];
  for (int axis = 0; axis < quantity.value.rank(); ++axis) extents.push_back(quantity.value.size(axis));
}

std::size_t Axes::count() const {
  return static_cast<std::size_t>(std::accumulate(extents.begin(), extents.end(), index_t{1}, std::multiplies<>()));
}

std::vector<index_t> Axes::position(std::size_t e) const {
  std::vector<index_t> at(extents.size());
  auto rest = static_cast<index_t>(e);
  for (std::size_t axis = extents.size(); axis-- > 0; rest /= extents[axis]) at[axis] = rest % extents[axis];
  return at;
}

std::size_t Axes::element(const std::vector<index_t>& at) const {
  index_t element = 0;
  for (std::size_t axis = 0; axis < at.size(); ++axis) element = element * extents[axis] + at[axis];
  return static_cast<std::size_t>(element);
}

}  // namespace whence::look

#include "tensor/tiles/operands.h"

#include "tensor/error.h"

namespace whence {

void Extents::fit(const char* op, const char* name, const Tensor& x, const char* axes) {
  int rank = 0;
  each_axis(axes, [&](char, int, bool) { ++rank; });
  std::vector<index_t> required;
  each_axis(axes, [&](char letter, int axis, bool may_be_1) {
    const int from_end = axis - rank;
    const index_t own = x.rank() >= -from_end ? x.size(from_end) : 1;
    index_t& extent = (*this)[letter];
    if (extent < 0 && !may_be_1) extent = own;
    required.push_back(may_be_1 && own == 1 ? 1 : extent);
  });
  if (const Shape shape(required); !(x.shape() == shape))
    fail(op, name, " is ", x.shape(), "; ", shape, " required, as the other operands are");
}

Extents extents_of(
    const char* op, std::span<const OperandInfo> info, std::span<const Tensor> operands, Extents extents) {
  for (std::size_t k = 0; k < operands.size(); ++k)
    if (operands[k].defined()) extents.fit(op, info[k].name, operands[k], info[k].axes);
  return extents;
}

}  // namespace whence

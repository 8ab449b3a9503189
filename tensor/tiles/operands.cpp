#include "tensor/tiles/operands.h"

#include "tensor/error.h"

namespace whence {

Extents extents_of(
    const char* op, std::span<const OperandInfo> info, std::span<const Tensor> operands, Extents extents) {
  for (std::size_t k = 0; k < operands.size(); ++k) {
    const Tensor& x = operands[k];
    if (!x.defined()) continue;
    int rank = 0;
    each_axis(info[k].axes, [&](char, int, bool) { ++rank; });
    std::vector<index_t> required;
    each_axis(info[k].axes, [&](char letter, int axis, bool may_be_1) {
      const int from_end = axis - rank;
      const index_t own = x.rank() >= -from_end ? x.size(from_end) : 1;
      index_t& extent = extents[letter];
      if (extent < 0 && !may_be_1) extent = own;
      required.push_back(may_be_1 && own == 1 ? 1 : extent);
    });
    if (const Shape shape(required); !(x.shape() == shape))
      fail(op, info[k].name, " is ", x.shape(), "; ", shape, " required, as the other operands are");
  }
  return extents;
}

}  // namespace whence

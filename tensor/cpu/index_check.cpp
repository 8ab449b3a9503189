// The Error about an index that is out of range, and the CPU's check.
#include "tensor/index_check.h"

#include "tensor/cpu/kernels.h"

namespace whence {

void index_out_of_range(const IndexCheck& check, const Shape& shape, index_t element, index_t value) {
  fail(check.op, check.argument, " at ", position_of(element, shape), " is ", value, "; a value in [0, ", check.count,
      ") required", check.also < 0 ? to_text(", or ", check.also, " to ignore it") : std::string());
}

Tensor CpuKernels::checked_index(const IndexCheck& check, const Tensor& index) {
  const index_t* values = index.data<index_t>();
  for (index_t i = 0, total = index.numel(); i < total; ++i)
    if (!check.allows(values[i])) index_out_of_range(check, index.shape(), i, values[i]);
  return index;
}

}  // namespace whence

// Index tensors on their way into an op: contiguous, i64, and inside the range before anything runs.
#pragma once

#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::detail {

// `index` as contiguous i64 numbers in [0, count), except `also` where that is given. Throws Error naming position and value of the first
// other one. On a device the numbers travel to the CPU for this check.
inline Tensor checked_index(const char* op, const char* argument, const Tensor& index, index_t count, index_t also = 0) {
  if (!is_index(index.dtype())) fail(op, concat(argument, " is ", index.dtype(), "; i64 or i32 required; convert with cast"));
  const Tensor flat = raw::contiguous(index.dtype() == DType::i64 ? index : raw::cast(index, DType::i64));
  const Tensor here = raw::to_device(flat, Device::cpu());
  const index_t* values = here.data<index_t>();
  for (index_t i = 0, total = here.numel(); i < total; ++i) {
    if ((values[i] >= 0 && values[i] < count) || (also < 0 && values[i] == also)) continue;
    Shape position = index.shape();
    for (index_t axis = position.rank() - 1, rest = i; axis >= 0; --axis) {
      const index_t extent = position[static_cast<int>(axis)];
      position[static_cast<int>(axis)] = rest % extent;
      rest /= extent;
    }
    fail(op, concat(argument, " at ", position, " is ", values[i], "; a value in [0, ", count, ") required",
                    also < 0 ? concat(", or ", also, " to ignore it") : std::string()));
  }
  return flat;
}

// 16-bit numbers are summed in f32 and rounded once.
inline DType sum_dtype(DType dtype) { return size_of(dtype) == 2 ? DType::f32 : dtype; }

}  // namespace whence::detail

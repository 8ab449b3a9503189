// Index tensors are made contiguous i64, and checked to be in range, before an op uses them.
#pragma once

#include "tensor/kernels.h"
#include "tensor/raw.h"

namespace whence::detail {

// Returns `index` as contiguous i64 numbers in [0, count); a negative `also` is allowed too. The Error has the position
// and value of the first other number. A GPU does not wait for this check: the Error comes when numbers are next read
// from it, and until then 0 replaces the index.
inline Tensor checked_index(
    const char* op, const char* argument, const Tensor& index, index_t count, index_t also = 0) {
  if (!is_index(index.dtype())) fail(op, argument, " is ", index.dtype(), "; i64 or i32 required; convert with cast");
  const Tensor flat = raw::contiguous(index.dtype() == DType::i64 ? index : raw::cast(index, DType::i64));
  return kernels(flat.device()).checked_index({op, argument, count, also}, flat);
}

}  // namespace whence::detail

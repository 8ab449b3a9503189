// Products by OpenBLAS, each on one thread.
// Note [Buffers of OpenBLAS]
// A call of OpenBLAS computes in a buffer of 128 MiB (of address space; untouched pages take no memory), which it keeps
// for a later call. If the system refuses a buffer, OpenBLAS retries for ever. So at most as many calls run at a time as
// there was room for. OpenBLAS allocates some buffers before main begins: see
// examples/whence/machine/room_at_start.cpp.
#pragma once

#include "tensor/shape.h"

namespace whence::blas {

// A matrix whose rows are `leading` apart; a transposed operand is read in place.
template <class T> struct Factor {
  const T* at;
  index_t leading;
  bool transposed = false;
};

// c = alpha a b + beta c,  a:[m k]  b:[k n]  c:[m n], its rows `leading` apart; T is float or double. Waits for another
// product if all buffers are in use. Throws OutOfMemory if there is no room for one.
template <class T>
void multiply(
    index_t m, index_t n, index_t k, T alpha, const Factor<T>& a, const Factor<T>& b, T beta, T* c, index_t leading);

}  // namespace whence::blas

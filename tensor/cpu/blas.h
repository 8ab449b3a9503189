// Products by OpenBLAS, each on one thread.
// Note [Buffers of OpenBLAS]
// A call of OpenBLAS computes in a buffer of 128 MiB (of address space; what it does not touch takes no memory), which
// it keeps for a later call. Where the system refuses one it asks again, for ever. So the buffers are asked for here,
// before the first product, each after a proof that there is room; and no more calls run at a time than there are
// buffers. At the start of a process OpenBLAS takes buffers before main begins: examples/whence/machine/room_at_start.cpp.
#pragma once

#include "tensor/shape.h"

namespace whence::blas {

// Buffers for `threads` products at a time, or for as many as there is room for. OutOfMemory when that is none.
void require_buffers(int threads);

// Rows `leading` apart; a transposed operand is read as it lies.
template <class T> struct Operand {
  const T* at;
  index_t leading;
  bool transposed = false;
};

// c = alpha a b + beta c,  a:[m k]  b:[k n]  c:[m n], its rows `leading` apart; T is float or double. Where all buffers
// are in use it waits until another product has ended. REQUIRES: require_buffers().
template <class T>
void multiply(
    index_t m, index_t n, index_t k, T alpha, const Operand<T>& a, const Operand<T>& b, T beta, T* c, index_t leading);

}  // namespace whence::blas

// Note [Buffers of OpenBLAS]
// A call of OpenBLAS computes in a buffer of 128 MiB (of address space; what it does not touch takes no memory), which
// it keeps for a later call. Where the system refuses one it asks again, for ever. So the buffers are asked for here,
// before the first product, each after a proof that there is room; and no more calls run at a time than there are
// buffers. At the start of a process OpenBLAS takes buffers before main begins: examples/app/room_at_start.cpp.
#pragma once

namespace whence::blas {

// Buffers for `threads` products at a time, or for as many as there is room for. OutOfMemory when that is none.
void require_buffers(int threads);

// One of them, while alive. Waits where all are in use, until another product has ended. Allocates nothing.
class Buffer {
 public:
  Buffer();
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
};

}  // namespace whence::blas

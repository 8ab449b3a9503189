// launch_kernel, the one function that starts kernels.
#pragma once

#include "cuda/vocabulary/thread.h"

namespace whence::gpu {

// A launch of blocks of Body::threads threads each.
struct Grid {
  index_t blocks = 1;            // up to 2^31 - 1; 0: nothing runs
  std::size_t shared_bytes = 0;  // of each block; see shared_bytes_for
};

// The shared memory that Thread::shared takes for `count` numbers of T.
template <class T> constexpr std::size_t shared_bytes_for(std::size_t count) {
  return (count * sizeof(T) + 15) / 16 * 16;
}

}  // namespace whence::gpu

#ifdef __CUDACC__

#include "cuda/runtime/runtime.h"

namespace whence::gpu {

// Blocks that should be resident on a multiprocessor at once, if a kernel has a member of this name: the compiler then
// limits registers. 0: no limit.
template <class Body> constexpr unsigned blocks_at_once() {
  if constexpr (requires { Body::blocks_at_once; }) return Body::blocks_at_once;
  return 0;
}

template <class Body> __global__ void __launch_bounds__(Body::threads, blocks_at_once<Body>()) kernel(const Body body) {
#ifdef __CUDA_ARCH__
  Thread thread;
  body(thread);
#endif
}

template <class Body> void start_kernel(const LaunchFacts& facts, const Body& body) {
  require_launchable(
      facts, reinterpret_cast<const void*>(&kernel<Body>));  // more than 48 KiB of shared memory must be requested
  kernel<Body><<<static_cast<unsigned>(facts.blocks), Body::threads, facts.shared_bytes, stream()>>>(body);
  launched(facts);
}

}  // namespace whence::gpu

#else
#include "cuda/emulator/run.h"
#endif

namespace whence::gpu {

// Runs the kernel on the engine's stream, and returns before it has ended; under the emulator, afterwards. If it cannot
// start: throws Error that names the kernel, the launch and the op's call site.
template <class Body> void launch_kernel(const Body& body, Grid grid) {
  static_assert(Body::threads % 32 == 0 && Body::threads <= 1024, "whole warps required: a shuffle needs all 32 lanes");
  if (grid.blocks > 0) start_kernel({Body::name, grid.blocks, Body::threads, grid.shared_bytes}, body);
}

}  // namespace whence::gpu

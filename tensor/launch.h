// One loop for host and device: body(i) for every i in [0, count), by threads on the CPU or by a grid on a GPU. An op
// whose result is "for each index, compute" is a struct with operator()(index_t) const, written once. Compiled by nvcc
// it runs on both; compiled for the host alone, on the CPU and on the emulated GPU (cuda/emulator/).
#pragma once

#include <type_traits>

#include "tensor/backend.h"
#include "tensor/error.h"
#include "tensor/parallel.h"

namespace whence {

#ifdef __CUDACC__
namespace device_code {
template <class Body> __global__ void for_each_index(index_t count, Body body) {
  const index_t step = static_cast<index_t>(gridDim.x) * blockDim.x;
#pragma unroll 1  // most threads have one index; unrolled code would divide to count the iterations
  for (index_t i = static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) body(i);
}
}  // namespace device_code
#endif

// `cost` is the rough number of elements that one index touches. It sets how many indices make a chunk of work.
// `static` on purpose: nvcc and the host compiler compile this template differently. With external linkage, the linker
// would merge instances for the same Body (tensor/lookup.h) and might keep the host's, which a GPU refuses.
template <class Body>
static void launch(const char* op, Device device, index_t count, const Body& body, index_t cost = 1) {
  if (device.is_cpu()) {
    const index_t grain = cost >= 16384 ? 1 : 16384 / (cost > 0 ? cost : 1);
    parallel_for(count, grain, [&](index_t begin, index_t end) {
      for (index_t i = begin; i < end; ++i) body(i);
    });
    return;
  }
  if (count == 0) return;
  IndexLauncher& launcher = *backend_of(device).launcher;
  if (device.is_planned()) return launcher.run(op, count, {});  // counted by the planned device
#ifdef __CUDACC__
  constexpr int block = 256;
  const index_t needed = (count + block - 1) / block, blocks = needed < 65536 ? needed : 65536;
  device_code::for_each_index<<<static_cast<unsigned>(blocks), block, 0, launcher.stream()>>>(count, body);
  launcher.launched(op, blocks, block);
#else
  static_assert(std::is_trivially_copyable_v<Body>, "a body travels to the device as bytes");
  const auto call = [](const void* of, index_t i) { (*static_cast<const Body*>(of))(i); };
  launcher.run(op, count, {&body, sizeof(Body), call});
#endif
}

}  // namespace whence

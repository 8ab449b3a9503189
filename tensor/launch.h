// One loop, two machines: body(i) for every i in [0, count), by threads on the CPU or by a grid on a GPU. An op whose result is "for each
// index, compute" is a struct with operator()(index_t) const, written once; compiled by nvcc it runs on both.
#pragma once

#include "tensor/error.h"
#include "tensor/parallel.h"

namespace whence {

#ifdef __CUDACC__
namespace device_code {
template <class Body>
__global__ void for_each_index(index_t count, Body body) {
  const index_t step = static_cast<index_t>(gridDim.x) * blockDim.x;
  for (index_t i = static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) body(i);
}
}  // namespace device_code
#endif

// `cost` is a rough number of elements that one index touches: it sets how many indices make a chunk of work.
template <class Body>
void launch(const char* op, Device device, index_t count, const Body& body, index_t cost = 1) {
  if (device.is_cpu()) {
    const index_t grain = cost >= 16384 ? 1 : 16384 / (cost > 0 ? cost : 1);
    parallel_for(count, grain, [&](index_t begin, index_t end) {
      for (index_t i = begin; i < end; ++i) body(i);
    });
    return;
  }
#ifdef __CUDACC__
  if (count == 0) return;
  constexpr int block = 256;
  const index_t blocks = (count + block - 1) / block;
  device_code::for_each_index<<<static_cast<unsigned>(blocks < 65536 ? blocks : 65536), block>>>(count, body);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) fail(op, concat("launch of ", count, " indices on ", to_string(device), ": ", cudaGetErrorString(status)));
#else
  fail(op, concat("device ", to_string(device), " given; this build has no CUDA; configure with -DWHENCE_CUDA=ON"));
#endif
}

}  // namespace whence

// The cost of a run on a GPU: milliseconds, the minimum of several runs. Its twin under the emulator is
// measure_emulated.cpp.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/ladder/ladder.h"
#include "cuda/runtime/runtime.h"
#include "tensor/error.h"

namespace whence::gpu::ladder {
namespace {

void check(cudaError_t status) {
  if (status != cudaSuccess) throw Error(to_text("ladder: ", cudaGetErrorString(status)));
}

// Two transfers per clock: GPU memory has a double data rate.
double peak_bytes_per_second() {
  int kilohertz = 0, bits = 0;
  check(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, 0));
  check(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, 0));
  return 2.0 * 1000.0 * kilohertz * bits / 8;
}

}  // namespace

Measured measure(const std::function<void()>& run) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  float least = 0;
  for (int repeat = 0; repeat < 10; ++repeat) {
    check(cudaEventRecord(begin, stream()));
    run();
    check(cudaEventRecord(end, stream()));
    check(cudaEventSynchronize(end));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    least = repeat == 0 ? milliseconds : std::min(least, milliseconds);
  }
  check(cudaEventDestroy(begin));
  check(cudaEventDestroy(end));
  return {{}, static_cast<double>(least), peak_bytes_per_second()};
}

}  // namespace whence::gpu::ladder

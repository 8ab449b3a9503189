// Device memory as libraries see it: on a GPU, where it is.
#include <cuda_runtime_api.h>

#include "cuda/runtime/library_memory.h"
#include "cuda/runtime/runtime.h"

namespace whence::gpu {

void* address_for_libraries(const void* address) { return const_cast<void*>(address); }

bool all_has_ended() {
  if (cudaStreamQuery(stream()) == cudaErrorNotReady) return false;
  synchronise();  // knows what to say of errors
  return true;
}

}  // namespace whence::gpu

// What answers for CUDA in a build without it: no kernels, no memory, so that asking for a GPU is an Error that says how to get one.
#include "cuda/backend.h"

namespace whence {

Backend cuda_backend() { return {}; }
Kernels* cuda_bodies() { return nullptr; }

}  // namespace whence

// What answers for CUDA in a build without it: no kernels, no memory, so that asking for a GPU is an Error that says
// how to get one.
#include "cuda/runtime/backend.h"
#include "tensor/device/backend.h"
#include "tensor/ranks/communicator.h"

namespace whence {

Backend cuda_backend() { return {}; }

const DeviceFacts& cuda_facts() {
  static const DeviceFacts& facts =
      *new DeviceFacts{.refusal = "this build has no CUDA", .advice = "configure with -DWHENCE_CUDA=ON", .name = {}};
  return facts;
}

gpu::emulator::Settings* emulator_settings() { return nullptr; }

bool nccl_can_be_loaded() { return false; }

std::unique_ptr<Communicator> join_nccl(const Launch&, const NcclOptions&) {
  throw InputError(
      "ranks: NCCL asked for, and this build has no CUDA; configure with -DWHENCE_CUDA=ON, or start ranks of CPUs "
      "by --processes or mpirun");
}

}  // namespace whence

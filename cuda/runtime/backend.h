// Functions of cuda/ in addition to the backend that it registers (tensor/backend.h).
#pragma once

#include "cuda/emulator/settings.h"
#include "tensor/backend.h"
#include "tensor/kernels.h"

namespace whence {

// Returns the settings of the emulated GPU, which may be changed. Null if cuda:0 does not exist or is a real one.
gpu::emulator::Settings* emulator_settings();

Kernels& dual_kernels();  // for duals on cuda:0: duals.cpp

namespace gpu {
// Runs an index-style op (tensor/launch.h) that was compiled for the host alone: emulator/index_ops.cpp. A GPU refuses.
void run_indices(const char* op, index_t count, const IndexBody& body);
}  // namespace gpu

}  // namespace whence

// Functions of cuda/ in addition to the backend that it registers (tensor/backend.h).
#pragma once

#include "cuda/emulator/settings.h"
#include "tensor/backend.h"
#include "tensor/kernels.h"

namespace whence {

// Returns the settings of the emulated GPU, which may be changed. Null if cuda:0 does not exist or is a real one.
gpu::emulator::Settings* emulator_settings();

// Starts index-style ops (tensor/launch.h) on cuda:0: runtime.cpp for a GPU, emulator/index_ops.cpp for the emulated
// one.
IndexLauncher& index_launcher();

Kernels& dual_kernels();  // for duals on cuda:0: duals.cpp

}  // namespace whence

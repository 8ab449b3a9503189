// What cuda/ offers besides cuda_backend() of tensor/kernels.h.
#pragma once

#include "cuda/emulator/settings.h"
#include "tensor/backend.h"
#include "tensor/kernels.h"

namespace whence {

// How the emulated GPU runs kernels, to be changed; null where cuda:0 is none or a real one.
gpu::emulator::Settings* emulator_settings();

}  // namespace whence

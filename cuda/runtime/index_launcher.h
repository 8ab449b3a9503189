// How index-style ops (tensor/device/launch.h) start on cuda:0.
#pragma once

#include "tensor/device/backend.h"
#include "tensor/kernels.h"

namespace whence {

// In index_launcher.cpp for a GPU, in cuda/emulator/launcher.cpp for the emulated one.
IndexLauncher& index_launcher();

}  // namespace whence

// Which device a program runs on. A word chooses it; a sentence says what was chosen and why.
#pragma once

#include <string>
#include <string_view>

#include "tensor/device.h"

namespace whence {

struct DeviceChoice {
  Device device;
  std::string sentence;  // "device: cpu, because no GPU can be used: no NVIDIA driver is installed"
};

// auto: a GPU where one can be used, never the emulator, which is slow. cpu. cuda: the GPU, or the emulator in a
// build that has it; throws InputError that names the cause when there is neither. InputError for another word. The
// second form judges by `facts`.
DeviceChoice choose_device(std::string_view wanted);
DeviceChoice choose_device(std::string_view wanted, const DeviceFacts& facts);

// "NVIDIA H100 80GB HBM3 (compute capability 9.0, 132 multiprocessors, 79.1 GiB)", or that it is emulated.
std::string describe(const DeviceFacts& facts);

}  // namespace whence

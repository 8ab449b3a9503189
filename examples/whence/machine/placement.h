// Placement of a program's model: --threads, --device and --precision, declared once for every program that runs one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "examples/whence/cli/fields.h"
#include "nn/training/precision.h"
#include "tensor/cpu/threads.h"
#include "tensor/device/device_runtime.h"

namespace whence {

struct DeviceChoice {
  Device device;
  std::string sentence;  // "device: cpu, because no GPU can be used: no NVIDIA driver is installed"
};

// auto: a GPU if one can be used, never the emulator, which is slow. cpu. cuda: the GPU, or the emulator in a build
// that has it; InputError with the cause when there is neither. InputError for another word.
DeviceChoice choose_device(std::string_view wanted, const DeviceFacts& facts = cuda_facts());

// Returns the CPU, with the reason, if it is estimated to draw tokens one by one faster than a GPU. For each token the
// CPU reads 4 bytes of every parameter, and the GPU launches the kernels of each layer. Nothing if the GPU is faster.
std::optional<DeviceChoice> cpu_to_draw(index_t layers, index_t parameters, double cpu_gb_per_s);

// Returns "NVIDIA H100 80GB HBM3 (compute capability 9.0, 132 multiprocessors, 79.1 GiB)", or that it is emulated.
std::string describe(const DeviceFacts& facts);

struct MachineOptions {
  int threads = whence::threads();
  std::string device = "auto";
  std::string precision = "f32";
};

// Declares the options under the title "Machine".
void declare(Fields& line, MachineOptions& options);
void declare_device(Fields& line, std::string* device);
void declare_precision(Fields& line, std::string* precision);

struct Placement {
  Device device;
  DType precision = DType::f32;
  std::string text;  // "device: cpu, because ...; precision: bf16"
};

// Sets the threads and finds the device, unless it is chosen. InputError, with the cause, when a requested GPU cannot be
// used.
[[nodiscard]] Placement placement_of(const MachineOptions& options, std::optional<DeviceChoice> choice = {});

// Moves a model there and rounds it. For a model that is only run, not trained, and that has its parameters.
void place(Module& model, const Placement& placement);

}  // namespace whence

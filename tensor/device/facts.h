// DeviceFacts: the properties of a GPU that its driver reports.
#pragma once

#include <cstddef>
#include <string>

namespace whence {

// The GPU that cuda:0 means, or why there is none.
struct DeviceFacts {
  std::string refusal;    // why it cannot be used; empty if it can. The facts below are set either way.
  std::string advice;     // what to do about it
  bool emulated = false;  // cuda/emulator replaces a GPU
  std::string name;       // "NVIDIA H100 80GB HBM3"
  int count = 0;          // devices that the driver reports
  int capability = 0;     // 90 is 9.0
  int multiprocessors = 0;
  std::size_t memory = 0;   // bytes
  int driver_version = 0;   // the newest CUDA that the driver supports, 13000 is 13.0; 0: no driver
  int runtime_version = 0;  // of the CUDA runtime in use, likewise; 0: none in this build
  int toolkit_version = 0;  // the CUDA toolkit of the build
};

// Returns "13.0" for 13000.
inline std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

const DeviceFacts& cuda_facts();  // defined in cuda/; never throws Error

}  // namespace whence

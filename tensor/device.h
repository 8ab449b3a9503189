// Where a tensor's numbers live, what is known of a GPU, and the one qualifier that lets a function run in both places.
#pragma once

#include <cstddef>
#include <string>

#ifdef __CUDACC__
#define WHENCE_HD __host__ __device__
#else
#define WHENCE_HD
#endif

namespace whence {

struct Device {
  // planned: a device that has no numbers, where work leaves nothing but counted bytes (tensor/device/planned.cpp)
  enum class Kind : unsigned char { cpu, cuda, planned };
  Kind kind = Kind::cpu;
  int index = 0;

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {Kind::cuda, index}; }
  static constexpr Device planned(Device in_place_of) { return {Kind::planned, in_place_of.is_cpu() ? 0 : 1}; }
  constexpr bool is_cpu() const { return kind == Kind::cpu; }
  constexpr bool is_planned() const { return kind == Kind::planned; }
  // One that is planned counts.
  constexpr bool is_gpu() const { return kind == Kind::cuda || (is_planned() && index == 1); }
  friend constexpr bool operator==(Device a, Device b) { return a.kind == b.kind && a.index == b.index; }
};

inline std::string to_string(Device device) {
  return device.is_cpu()       ? "cpu"
         : device.is_planned() ? device.index == 0 ? "planned cpu" : "planned gpu"
                               : "cuda:" + std::to_string(device.index);
}

// The GPU that cuda:0 means, or why there is none.
struct DeviceFacts {
  std::string refusal;    // why it cannot be used; empty when it can. The facts below are filled in all the same.
  std::string advice;     // what to do about it
  bool emulated = false;  // cuda/emulator stands in for a GPU
  std::string name;       // "NVIDIA H100 80GB HBM3"
  int count = 0;          // devices that the driver shows
  int capability = 0;     // 90 is 9.0
  int multiprocessors = 0;
  std::size_t memory = 0;   // bytes
  int driver_version = 0;   // the newest CUDA that the driver knows, 13000 is 13.0; 0: no driver
  int runtime_version = 0;  // of the CUDA runtime in use, likewise; 0: none in this build
  int toolkit_version = 0;  // that the build was compiled with
};

// "13.0" of 13000
inline std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace whence

// Device: where a tensor's numbers are stored. WHENCE_HD: the qualifier of functions that run on both host and device.
#pragma once

#include <string>

#ifdef __CUDACC__
#define WHENCE_HD __host__ __device__
#else
#define WHENCE_HD
#endif

namespace whence {

struct Device {
  // planned: a device without numbers, which only counts bytes and operations (tensor/device/planned.cpp)
  enum class Kind : unsigned char { cpu, cuda, planned };
  Kind kind = Kind::cpu;
  int index = 0;

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {Kind::cuda, index}; }
  static constexpr Device planned(Device in_place_of) { return {Kind::planned, in_place_of.is_cpu() ? 0 : 1}; }
  constexpr bool is_cpu() const { return kind == Kind::cpu; }
  constexpr bool is_planned() const { return kind == Kind::planned; }
  // True for a planned GPU too.
  constexpr bool is_gpu() const { return kind == Kind::cuda || (is_planned() && index == 1); }
  friend constexpr bool operator==(Device a, Device b) { return a.kind == b.kind && a.index == b.index; }
};

inline std::string to_string(Device device) {
  return device.is_cpu()       ? "cpu"
         : device.is_planned() ? device.index == 0 ? "planned cpu" : "planned gpu"
                               : "cuda:" + std::to_string(device.index);
}

}  // namespace whence

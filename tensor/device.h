// Where a tensor's numbers live, and the one qualifier that lets a function run in both places.
#pragma once

#include <string>

#ifdef __CUDACC__
#define WHENCE_HD __host__ __device__
#else
#define WHENCE_HD
#endif

namespace whence {

struct Device {
  enum class Kind : unsigned char { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {Kind::cuda, index}; }
  constexpr bool is_cpu() const { return kind == Kind::cpu; }
  friend constexpr bool operator==(Device a, Device b) { return a.kind == b.kind && a.index == b.index; }
};

inline std::string to_string(Device device) { return device.is_cpu() ? "cpu" : "cuda:" + std::to_string(device.index); }

}  // namespace whence

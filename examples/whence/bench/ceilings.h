// What no program on this machine can pass, measured by this one.
#pragma once

#include <limits>
#include <string>

namespace whence::bench {

// Not numbers where nothing was measured, as on another device than the CPU: nor then are the shares of them.
struct Ceilings {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  std::string vectors;                // "AVX-512", "AVX2", "baseline": the widest that this CPU has
  double fma_gflops_alone = unknown;  // f32 multiply-adds of one thread, two operations each
  double fma_gflops = unknown;        // of all threads
  double copy_gb_per_s = unknown;     // memory to memory, bytes read and bytes written, all threads
  double read_gb_per_s = unknown;     // from memory, all threads
  double load = unknown;              // programs that wanted a core in the last minute: what else this machine does

  [[nodiscard]] double milliseconds_of(double operations) const { return operations / fma_gflops / 1e6; }
  [[nodiscard]] std::string text() const;
};
[[nodiscard]] Ceilings measure_ceilings();
[[nodiscard]] double measure_read_gb_per_s();  // that one alone

}  // namespace whence::bench

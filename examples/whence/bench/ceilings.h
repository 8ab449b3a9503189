// Limits that no program on this machine can exceed, measured by this one.
#pragma once

#include <limits>
#include <string>

namespace whence::bench {

// nan if not measured, as on a GPU; then shares are nan too.
struct Ceilings {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  std::string vectors;                // "AVX-512", "AVX2", "baseline": the widest that this CPU has
  double fma_gflops_alone = unknown;  // f32 multiply-adds of one thread, two operations each
  double fma_gflops = unknown;        // all threads
  double copy_gb_per_s = unknown;     // memory to memory, bytes read and bytes written, all threads
  double read_gb_per_s = unknown;     // from memory, all threads
  double load = unknown;              // programs waiting for a core in the last minute: other load

  [[nodiscard]] double milliseconds_of(double operations) const { return operations / fma_gflops / 1e6; }
  [[nodiscard]] std::string text() const;
};
[[nodiscard]] Ceilings measure_ceilings();
[[nodiscard]] double measure_read_gb_per_s();  // this one alone

}  // namespace whence::bench

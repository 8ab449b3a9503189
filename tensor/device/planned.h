// Operations counted by the planned device (tensor/device/planned.cpp). Moving numbers does not count. Neither does the
// tiled executor, which computes the pairs of attention twice: count a formula's operations on its composed form.
#pragma once

namespace whence {

struct PlannedOperations {
  double products = 0;  // matrix products and convolutions: two per multiply-add, masked pairs and borders included
  double others = 0;    // all other kernels: one per number read or written, whichever are more; rotary: one per pair
  [[nodiscard]] double sum() const { return products + others; }
};
[[nodiscard]] PlannedOperations planned_operations();  // on this thread so far

}  // namespace whence

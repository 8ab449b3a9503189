// What the planned device (tensor/device/planned.cpp) was asked to compute. Moving numbers is not counted, nor is what
// the tiled executor does, which computes the pairs of attention twice: who wants the operations of a formula asks its
// composed form.
#pragma once

namespace whence {

struct PlannedOperations {
  double products = 0;  // of matrix products and convolutions: two per multiply-add, masked pairs and borders too
  double others = 0;    // of all other kernels: one for each number read or made, whichever are more; rotary: each pair
  [[nodiscard]] double sum() const { return products + others; }
};
[[nodiscard]] PlannedOperations planned_operations();  // of this thread so far

}  // namespace whence

// Helpers that checks of results share: distances, equality of bits, and settings that hold in a scope.
#pragma once

#include <vector>

#include "tensor/cpu/threads.h"
#include "tensor/tensor.h"

namespace whence {

// Returns the largest |a_i - b_i|; infinity if shapes differ or a number is NaN.
[[nodiscard]] double largest_difference(const Tensor& a, const Tensor& b);
[[nodiscard]] double largest_size(const Tensor& x);

// Returns new leaves over the same numbers, which share no gradients with the inputs.
[[nodiscard]] std::vector<Tensor> leaves_of(const std::vector<Tensor>& inputs);

// True also for equal views, and if both are undefined.
[[nodiscard]] bool same_bits(const Tensor& a, const Tensor& b);
[[nodiscard]] bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b);

// Puts sentinels around every tensor made during its lifetime.
struct Guards {
  Guards() { Storage::set_guards(true); }
  ~Guards() { Storage::set_guards(false); }
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;
};

// Sets the number of threads, and restores the old number when destroyed.
class WithThreads {
 public:
  explicit WithThreads(int count) : before_(threads()) { set_threads(count); }
  ~WithThreads() { set_threads(before_); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;

 private:
  const int before_;
};

}  // namespace whence

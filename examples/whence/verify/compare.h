// What checks of results share: how far two are apart, whether their bits are the same, and settings for a while.
#pragma once

#include <vector>

#include "tensor/cpu/threads.h"
#include "tensor/tensor.h"

namespace whence {

// The largest |a_i - b_i|; infinite where shapes differ or a number of one is NaN.
[[nodiscard]] double largest_difference(const Tensor& a, const Tensor& b);
[[nodiscard]] double largest_size(const Tensor& x);

// Fresh leaves over the same numbers, so that nobody sees another's gradients.
[[nodiscard]] std::vector<Tensor> leaves_of(const std::vector<Tensor>& inputs);

// Also of views, and where both are undefined.
[[nodiscard]] bool same_bits(const Tensor& a, const Tensor& b);
[[nodiscard]] bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b);

// Sentinels around every tensor made while this is alive.
struct Guards {
  Guards() { Storage::set_guards(true); }
  ~Guards() { Storage::set_guards(false); }
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;
};

// So many threads while it lives, and as many as before when it goes.
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

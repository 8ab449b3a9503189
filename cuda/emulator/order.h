// The order in which threads, blocks and indices run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tensor/shape.h"

namespace whence::gpu::emulator {

class Order {
 public:
  // 0 ascending, 1 descending, others random, and different for each launch.
  explicit Order(std::uint64_t seed) : seed_(seed), state_(seed * 0x9E3779B97F4A7C15u + ++orders) {}

  bool descending() const { return seed_ == 1; }
  bool random() const { return seed_ > 1; }
  std::uint64_t draw(std::uint64_t below) {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return state_ % below;
  }
  // Reorders ascending numbers.
  void arrange(std::vector<int>& ascending) {
    if (descending()) std::reverse(ascending.begin(), ascending.end());
    if (!random()) return;
    for (std::size_t k = ascending.size(); k > 1; --k) std::swap(ascending[k - 1], ascending[draw(k)]);
  }

 private:
  static inline std::uint64_t orders = 0;
  std::uint64_t seed_, state_;
};

// The indices of [0, count), one after the other in an order, without a table. A step that shares no divisor with count
// reaches them all.
class IndexOrder {
 public:
  IndexOrder(index_t count, Order& order) : count_(count), step_(1) {
    if (order.descending()) at_ = count - 1, step_ = count - 1;
    if (!order.random() || count < 2) return;
    const std::uint64_t all = static_cast<std::uint64_t>(count);
    at_ = static_cast<index_t>(order.draw(all));
    do step_ = static_cast<index_t>(1 + order.draw(all - 1));
    while (std::gcd(step_, count) != 1);
  }
  index_t next() {
    const index_t now = at_;
    at_ = at_ < count_ - step_ ? at_ + step_ : at_ - (count_ - step_);
    return now;
  }

 private:
  index_t count_, step_, at_ = 0;
};

}  // namespace whence::gpu::emulator

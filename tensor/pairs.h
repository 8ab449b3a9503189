// Tensors of all pairs of a query and a key, made where they are needed from one row of queries and one of keys: on a
// GPU too nothing of O(T^2) is worked out by the host, or sent.
#pragma once

#include <algorithm>

#include "tensor/tensor.h"

namespace whence {

// How many whole steps query i and key j lie apart: query[b, i] - key[b, j], and `lowest` where that is less.
struct PairSteps {
  Tensor query, key;              // i64 [1|b i], [1|b j], contiguous
  index_t lowest = 0, count = 0;  // every pair has one of the steps lowest ... lowest + count - 1
  // query[b, i + 1] = query[b, i] + 1, and the keys likewise: pairs of one distance lie along a diagonal
  bool even = false;

  // `query` and `key` on the CPU. Throws Error where a pair has more than `count` steps.
  static PairSteps of(const Tensor& query, const Tensor& key, index_t lowest, index_t count);
  [[nodiscard]] PairSteps on(Device device) const;
  // Whether it is made of the very same rows.
  bool reads_as(const PairSteps& other) const {
    return query.identity() == other.query.identity() && key.identity() == other.key.identity() &&
           lowest == other.lowest && count == other.count;
  }
  index_t batch() const { return std::max(query.size(0), key.size(0)); }
};

namespace raw {

// y[b, h, i, j] = table[h, steps of (b, i, j) - lowest]: [h n], any dtype -> [1|b h i j]. REQUIRES: one device
[[nodiscard]] Tensor read_by_steps(const PairSteps& steps, const Tensor& table);

// Which keys a query sees, by causality and padding: bool [1|b 1 rows keys] on `device`, true where j <= first_row + i
// and present[b, 0, 0, j]. present: bool [1|b 1 1 j], or undefined.
[[nodiscard]] Tensor causal_mask(index_t rows, index_t keys, index_t first_row, const Tensor& present, Device device);

}  // namespace raw
}  // namespace whence

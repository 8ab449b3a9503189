// Tensors over all query-key pairs, made on the device from one row of queries and one of keys, so that the host
// neither computes nor sends anything of O(T^2).
#pragma once

#include <algorithm>

#include "tensor/tensor.h"

namespace whence {

// steps(b, i, j) = max(query[b, i] - key[b, j], lowest): how many steps query i is after key j.
struct Steps {
  Tensor query, key;              // i64 [1|b i], [1|b j], contiguous
  index_t lowest = 0, count = 0;  // every pair has a step of lowest ... lowest + count - 1
  // query[b, i + 1] = query[b, i] + 1, and likewise for keys: pairs of one distance form a diagonal
  bool even = false;

  // `query` and `key` are on the CPU. `lowest` is 0 if causal, else the smallest step of a pair.
  static Steps of(const Tensor& query, const Tensor& key, bool causal);
  [[nodiscard]] Steps on(Device device) const;
  index_t batch() const { return std::max(query.size(0), key.size(0)); }
  // True if a and b give equal steps for every pair. On a GPU tensors are compared by identity, so false may mean
  // "unknown".
  friend bool operator==(const Steps& a, const Steps& b);
};

// Query i sees the keys from first_row + i - before to first_row + i + after. Causal: none after its own. With a
// window: only keys closer than `window` to its own.
struct Band {
  static constexpr index_t any = index_t(1) << 40;  // larger than any sequence
  index_t first_row = 0, before = any, after = 0;

  static Band of(index_t first_row, bool causal, index_t window) {
    const index_t beside = window > 0 ? std::min(window - 1, any) : any;
    return {first_row, beside, causal ? 0 : beside};
  }
};

// Returns row b of [1|b t], on the CPU.
inline const index_t* row_of(const Tensor& x, index_t b) {
  return x.data<index_t>() + (x.size(0) == 1 ? 0 : b * x.size(1));
}

namespace raw {

// y[b, h, i, j] = table[h, steps(b, i, j) - lowest]: [h n], any dtype -> [1|b h i j]. REQUIRES: one device
[[nodiscard]] Tensor read_by_distance(const Steps& steps, const Tensor& table);

// Returns the keys that each query sees, by position and padding: bool [1|b 1 rows keys] on `device`, true if the key
// is in the band and present[b, 0, 0, j]. present: bool [1|b 1 1 j], or undefined.
[[nodiscard]] Tensor band_mask(index_t rows, index_t keys, const Band& band, const Tensor& present, Device device);

}  // namespace raw
}  // namespace whence

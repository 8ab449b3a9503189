// Tensors of all pairs of a query and a key, made where they are needed from one row of queries and one of keys: on a
// GPU too nothing of O(T^2) is worked out by the host, or sent.
#pragma once

#include <algorithm>

#include "tensor/tensor.h"

namespace whence {

// How many whole steps query i and key j lie apart: query[b, i] - key[b, j], and `lowest` where that is less.
struct Steps {
  Tensor query, key;              // i64 [1|b i], [1|b j], contiguous
  index_t lowest = 0, count = 0;  // every pair has one of the steps lowest ... lowest + count - 1
  // query[b, i + 1] = query[b, i] + 1, and the keys likewise: pairs of one distance lie along a diagonal
  bool even = false;

  // `query` and `key` on the CPU. Causal: `lowest` is 0, else the least that a pair has.
  static Steps of(const Tensor& query, const Tensor& key, bool causal);
  [[nodiscard]] Steps on(Device device) const;
  index_t batch() const { return std::max(query.size(0), key.size(0)); }
  // Whether these are known to be the same for each pair: rows on a GPU are not read, but compared as tensors.
  friend bool operator==(const Steps& a, const Steps& b);
};

// Query i sees the keys from first_row + i - before to first_row + i + after: all up to its own where it is causal, and
// none that lies `window` or more away from its own where there is a window.
struct Band {
  static constexpr index_t any = index_t(1) << 40;  // farther than runs are long
  index_t first_row = 0, before = any, after = 0;

  static Band of(index_t first_row, bool causal, index_t window) {
    const index_t beside = window > 0 ? window - 1 : any;
    return {first_row, beside, causal ? 0 : beside};
  }
};

// Row b of [1|b t], on the CPU
inline const index_t* row_of(const Tensor& x, index_t b) {
  return x.data<index_t>() + (x.size(0) == 1 ? 0 : b * x.size(1));
}

namespace raw {

// y[b, h, i, j] = table[h, steps of (b, i, j) - lowest]: [h n], any dtype -> [1|b h i j]. REQUIRES: one device
[[nodiscard]] Tensor read_by_distance(const Steps& steps, const Tensor& table);

// Which keys a query sees, by where they lie and by padding: bool [1|b 1 rows keys] on `device`, true for the keys of
// the band where present[b, 0, 0, j]. present: bool [1|b 1 1 j], or undefined.
[[nodiscard]] Tensor band_mask(index_t rows, index_t keys, const Band& band, const Tensor& present, Device device);

}  // namespace raw
}  // namespace whence

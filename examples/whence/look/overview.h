// Overview of a long text: maps of pairs pooled over square cells, some windows of single numbers, and one query against
// all keys. It is computed strip by strip, so that memory grows only linearly with the length of the text.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/look/rows.h"

namespace whence::look {

// Pools of one quantity in one layer, [h cells cells] f32, over the numbers of a cell without NaN. NaN if a cell has none, for
// example because every pair is masked.
struct Pools {
  Quantity quantity;               // without its numbers
  Tensor maximum, mean, gradient;  // maximum and mean of the values; the largest |gradient|
};

// Single numbers of one layer: queries [i, i+rows) against keys [j, j+columns), or one query against all keys. Masked pairs
// are NaN.
struct Window {
  index_t layer, i, j, rows, columns;
  std::string why;
  std::vector<Quantity> quantities;  // [h rows columns], gradients likewise

  bool has(index_t query, index_t key) const { return i <= query && query < i + rows && j <= key && key < j + columns; }
};

struct Overview {
  index_t tokens, cell, cells;  // pairs along the side of a cell; cells along the side of a map
  std::vector<Pools> pools;     // layer by layer
  std::vector<Window> windows, strips;
};

// Makes windows where the gradient of the logits is largest, and around each (query, key) of `at`. Strips are for the last
// query and the queries of `at`. Sizes and counts are chosen so that everything takes at most `bytes` of a page. Throws
// InputError if the windows of `at` would not fit. Calls `progress` with the share done.
[[nodiscard]] Overview overview_of(const Rows& rows, const std::vector<std::pair<index_t, index_t>>& at, double bytes,
    const std::function<void(double)>& progress = {});

// Returns the estimated size of a page with every single number, from one row of quantities.
[[nodiscard]] double bytes_of_all(const Rows& rows);

}  // namespace whence::look

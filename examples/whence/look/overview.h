// A long text at a glance: maps of pairs as pools of square cells, some windows of single numbers, and one query
// against all keys. Made strip by strip, so that memory grows with the length of the text alone.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/look/rows.h"

namespace whence::look {

// Of one quantity in one layer, [h cells cells] f32, over the numbers of a cell that are numbers; NaN where there are
// none, as where the mask hides every pair.
struct Pools {
  Quantity quantity;               // without its numbers
  Tensor maximum, mean, gradient;  // of the values twice; the largest |gradient|
};

// Single numbers of one layer: queries [i, i+rows) against keys [j, j+columns), or one query against all. NaN where
// masked.
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

// Windows stand where the gradient of the logits is largest, and where `at` asks for (query, key); strips are of the
// last query, or of those of `at`. Sizes and counts are chosen so that all of it takes at most `bytes` of a page;
// InputError where the windows of `at` would not fit. `progress` hears the share done.
[[nodiscard]] Overview overview_of(const Rows& rows, const std::vector<std::pair<index_t, index_t>>& at, double bytes,
    const std::function<void(double)>& progress = {});

// What a page with every single number would take, judged by one row of each layer's quantities.
[[nodiscard]] double bytes_of_all(const Rows& rows);

}  // namespace whence::look

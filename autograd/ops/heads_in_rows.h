// Heads of queries, keys and values in the rows of one product. Tiles read and write them in this layout.
#pragma once

#include <array>

#include "tensor/tensor.h"

namespace whence {

using ThreeHeads = std::array<Tensor, 3>;  // [b h t d], [b g t d], [b g t d]

// Returns views of rows [b t, (h+2g) d]: the heads of counts {h, g, g}.
inline ThreeHeads heads_in_rows(
    const Tensor& rows, index_t batch, index_t length, const std::array<index_t, 3>& counts) {
  const index_t width = rows.size(1), dim = width / (counts[0] + counts[1] + counts[2]);
  ThreeHeads heads;
  index_t first = 0;
  for (std::size_t k = 0; k < heads.size(); first += counts[k++] * dim)
    heads[k] = rows.view({batch, counts[k], length, dim}, {length * width, dim, width, 1}, first);
  return heads;
}

// Returns the rows of which these are such views; undefined for any other layout.
inline Tensor rows_of_heads(const ThreeHeads& heads) {
  const Tensor& query = heads[0];
  for (const Tensor& each : heads)
    if (!each.defined() || each.rank() != 4 || &each.storage() != &query.storage()) return {};
  const std::array counts{heads[0].size(1), heads[1].size(1), heads[2].size(1)};
  const index_t batch = query.size(0), length = query.size(2),
                width = (counts[0] + counts[1] + counts[2]) * query.size(3);
  const Tensor rows = query.view({batch * length, width}, {width, 1});
  const ThreeHeads there = heads_in_rows(rows, batch, length, counts);
  for (std::size_t k = 0; k < heads.size(); ++k) {
    const bool same = heads[k].bytes() == there[k].bytes() && heads[k].dtype() == query.dtype() &&
                      heads[k].shape() == there[k].shape() && heads[k].strides() == there[k].strides();
    if (!same) return {};
  }
  return rows;
}

}  // namespace whence

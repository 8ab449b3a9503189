// The pattern summed by distance (Shaw's values): bins_i[bin(steps)] += P_ij. Distances beyond the bins are in no bin.
#pragma once

#include "tensor/cpu/tiles/programs/by_distance.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> struct Bins : Program<T> {
  T* sums;  // [query, bin]: the sums; in backward, their gradient

  void take(Cutter<T>& cut, const Problem<T>& p, bool) { sums = cut.take(p.bins * block_rows<T>); }
  void block(const QueryBlock<T>& block) {
    const Problem<T>& p = block.p;
    clear(sums, p.bins * block_rows<T>);
    const Rows<const T> from = p.bin_gradient;
    for (extent i = 0; from.at && i < block.rows; ++i)
      for (extent n = 0; n < p.bins; ++n)
        sums[i * p.bins + n] = head_of(from, block.b, block.h)[(block.first_query + i) * from.row + n];
  }

  void sum(const Tile<T>& tile, const T* pattern) {
    each(tile, [&](extent pair, extent at) { sums[at] += pattern[pair]; });
  }
  void fade(const QueryBlock<T>& block, const RunningSoftmax<T>& softmax) {
    softmax.fade(block.rows, block.p.bins, sums);
  }
  void write(const QueryBlock<T>& block, const RunningSoftmax<T>& softmax) {
    const Problem<T>& p = block.p;
    for (extent i = 0; i < block.rows; ++i)
      for (extent n = 0; n < p.bins; ++n)
        head_of(p.bin_sums, block.b, block.h)[(block.first_query + i) * p.bin_sums.row + n] =
            sums[i * p.bins + n] * softmax.share(i);
  }

  void add_output_dot(const QueryBlock<T>& block, T* output_dot) {
    const Problem<T>& p = block.p;
    for (extent i = 0; i < block.rows; ++i)
      for (extent n = 0; n < p.bins; ++n)
        output_dot[i] +=
            head_of(p.bin_sums, block.b, block.h)[(block.first_query + i) * p.bin_sums.row + n] * sums[i * p.bins + n];
  }
  void add_gradient(const Tile<T>& tile, T* d_pattern) {
    each(tile, [&](extent pair, extent at) { d_pattern[pair] += sums[at]; });
  }

 private:
  // Calls f(k, i, index of the bin [i, bin]).
  template <class F> static void each(const Tile<T>& tile, const F& f) {
    const Problem<T>& p = tile.block.p;
    if (p.bins == 0) return;
    for (extent k = 0; k < tile.keys; ++k) {
      for (extent i = tile.first_lane(k), end = min(tile.block.rows, tile.end_lane(k)); i < end; ++i) {
        const extent row = table_row(tile.block, i, tile.first_key + k);
        if (row < p.distances) f(k * tile.block.columns + i, i * p.bins + p.bin_of[row]);
      }
    }
  }
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET

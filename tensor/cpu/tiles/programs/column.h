// column: x[k][i] += column[k]
#pragma once

#include "tensor/cpu/tiles/programs/program.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> struct Column : Program<T> {
  void add(const Tile<T>& tile, T* x) {
    const Block<T>& block = tile.block;
    const Rows<const T> column = block.p.in[At::column_term];
    if (!column) return;
    for (extent k = 0; k < tile.keys; ++k) {
      const Vector<T> term = splat(column.of(block.b, block.h)[tile.first_key + k]);
      for (extent n = 0; n < block.columns; n += lanes<T>) {
        T* at = x + k * block.columns + n;
        store<T>(at, load(at) + term);
      }
    }
  }

  void gather(const Tile<T>& tile, const T* dx) {
    const Block<T>& block = tile.block;
    const Rows<T> to = block.p.d[At::column_term];
    for (extent k = 0; to && k < tile.keys; ++k) {
      Vector<T> sum = zero<T>();
      for (extent n = 0; n < block.columns; n += lanes<T>) sum = sum + load(dx + k * block.columns + n);
      to.of(block.b, block.h)[tile.first_key + k] += sum_of_lanes<T>(sum);
    }
  }
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET

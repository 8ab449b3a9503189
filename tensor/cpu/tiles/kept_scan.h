// KeptScan: a recurrence that runs down the keys, as tiles come, has a gradient that is summed up the keys. What the sum
// reads is kept for each pair of a block until all its tiles have been.
#pragma once

#include "tensor/cpu/tiles/softmax.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> struct KeptScan {
  extent first;    // first key of the tiles that were kept
  T *dx, *factor;  // [keys, block rows]: what is summed, and what the gradient of each pair reads beside the sum
  T* sums;         // per lane, of the tiles so far

  void take(Cutter<T>& cut, const Problem<T>& p, bool backward) {
    const extent kept = backward ? (p.keys + tile_keys<T>)*block_rows<T> : 0;
    dx = cut.take(kept), factor = cut.take(kept), sums = cut.take(block_rows<T>);
  }
  void begin(const QueryBlock<T>& block) { first = block.keys(), clear(sums, block_rows<T>); }
  // Returns a tile's part of dx or factor.
  static T* of_tile(const Tile<T>& tile, T* kept) { return kept + tile.first_key * tile.block.columns; }

  // Goes up the keys: dx becomes f(dx, factor, sum of dx over earlier tiles, sum over earlier keys of this tile), which
  // gather(tile, dx) then takes.
  template <class F, class G> void up(const QueryBlock<T>& block, const F& f, const G& gather) {
    for (extent key = first; key < block.keys(); key += tile_keys<T>) {
      const Tile<T> tile(block, key, min(tile_keys<T>, block.keys() - key));
      T *const own = of_tile(tile, dx), *const factors = of_tile(tile, factor);
      for (extent n = 0; n < block.columns; n += lanes<T>) {
        const Vector<T> before = load(sums + n);
        Vector<T> sum = zero<T>();
        for (extent at = n; at < tile.keys * block.columns; at += block.columns) {
          const Vector<T> gradient = load(own + at);
          store<T>(own + at, f(gradient, load(factors + at), before, sum));
          sum = sum + gradient;
        }
        store<T>(sums + n, before + sum);
      }
      gather(tile, own);
    }
  }
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET

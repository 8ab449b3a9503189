// column: x[k][i] += column[k]
// Softmax ignores what all keys of a row share, so a row takes a number off: that of its own token, which leaves small
// numbers where keys are near, and which no row reads that does not see it. What is taken off has a gradient, minus the
// row's sum of dx: 0 but for rounding, and it cancels what rounding gives to the columns. Both matter where columns are
// long sums themselves (forgetting).
#pragma once

#include "tensor/cpu/tiles/programs/program.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> struct Column : Program<T> {
  T *taken_off, *row_sums;  // per lane; the sum of dx (backward)

  void take(Cutter<T>& cut, const Problem<T>& p, bool backward) {
    const extent count = p.in[At::column_term].at ? block_rows<T> : 0;
    taken_off = cut.take(count), row_sums = cut.take(backward ? count : 0);
  }
  void block(const Block<T>& block) {
    const Rows<const T> column = block.p.in[At::column_term];
    if (!column.at) return;
    for (extent i = 0; i < block.columns; ++i) {
      const T own = head_of(column, block.b, block.h)[least(block.first_token() + i, block.p.keys - 1)];
      taken_off[i] = own - own == T(0) ? own : T(0);  // whoever sees a number that is not finite has it anyway
    }
    if (block.p.d[At::column_term].at) clear(row_sums, block_rows<T>);
  }
  void add(const Tile<T>& tile, T* x) {
    const Block<T>& block = tile.block;
    const Rows<const T> column = block.p.in[At::column_term];
    if (!column.at) return;
    for (extent k = 0; k < tile.keys; ++k) {
      const Vector<T> term = splat(head_of(column, block.b, block.h)[tile.first_key + k]);
      for (extent n = 0; n < block.columns; n += lanes<T>) {
        T* at = x + k * block.columns + n;
        store<T>(at, load(at) + (term - load(taken_off + n)));
      }
    }
  }

  void gather(const Tile<T>& tile, const T* dx) {
    const Block<T>& block = tile.block;
    const Rows<T> to = block.p.d[At::column_term];
    if (!to.at) return;
    for (extent k = 0; k < tile.keys; ++k) {
      Vector<T> sum = zero<T>();
      for (extent n = 0; n < block.columns; n += lanes<T>) sum = sum + load(dx + k * block.columns + n);
      head_of(to, block.b, block.h)[tile.first_key + k] += sum_of_lanes<T>(sum);
    }
    const T one = T(1);  // row_sums += a row of ones times dx
    multiply<T>(1, block.columns, {tile.keys}, {&one, 0, 0}, dx, block.columns, row_sums, block.columns, Start::given);
  }
  void finish(const Block<T>& block, Pairing<T>&) {
    const Rows<T> to = block.p.d[At::column_term];
    for (extent i = 0; to.at && i < block.rows && block.first_token() + i < block.p.keys; ++i)
      head_of(to, block.b, block.h)[block.first_token() + i] -= row_sums[i];
  }
  using Program<T>::finish;
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET

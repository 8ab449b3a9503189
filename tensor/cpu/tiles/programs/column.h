// column: x[k][i] += slope[i] (column[k] - column[own i] + rest[k] - rest[own i])
// Softmax ignores a number that all keys of a row share, so a row subtracts its own token's: for near keys small
// numbers remain. The subtracted number has a gradient, minus the row's sum of dx: it is 0 but for rounding, and
// cancels what rounding adds to the columns. Both matter if columns are long sums themselves (forgetting), as their
// gradients are summed once more: so sums of dx are f64. The rest is what T could not hold of a long sum: for near keys
// it is as large as their difference. Its gradient is what T cannot hold of the column's.
// Slopes are 1 unless queries have their own (cable); then d slope[i] = sum_k dx (column[k] - column[own i] ...).
#pragma once

#include <type_traits>

#include "tensor/cpu/tiles/programs/program.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> struct Column : Program<T> {
  T *own, *own_rest;  // of each lane's own token
  using Sum = std::conditional_t<std::is_same_v<T, float>, double, T>;
  Sum row_sums[block_rows<T>];  // of dx, per lane (backward)
  T *slopes, *d_slopes;         // per lane, if there are any

  void take(Cutter<T>& cut, const Problem<T>& p, bool backward) {
    const auto lanes_if = [&](bool needed) { return cut.take(needed ? block_rows<T> : 0); };
    const bool given = p.in[At::column_term].at, sloped = p.in[At::column_slope].at;
    own = lanes_if(given), own_rest = lanes_if(p.in[At::column_rest].at);
    slopes = lanes_if(sloped), d_slopes = lanes_if(backward && sloped);
  }
  void block(const QueryBlock<T>& block) {
    const Problem<T>& p = block.p;
    if (!p.in[At::column_term].at) return;
    const auto hold = [&](T* to, std::size_t which, bool by_key) {
      if (!p.in[which].at) return;
      const T* from = head_of(p.in[which], block.b, block.h);
      for (extent i = 0; i < block_rows<T>; ++i) {
        const T x = from[by_key ? min(block.first_token() + min(i, block.rows - 1), p.keys - 1)
                                : block.first_query + min(i, block.rows - 1)];
        // A row that sees a key whose number is not finite gets it from that key. Its slope is read here alone.
        to[i] = !by_key || x - x == T(0) ? x : T(0);
      }
    };
    hold(own, At::column_term, true), hold(own_rest, At::column_rest, true), hold(slopes, At::column_slope, false);
    for (Sum& sum : row_sums) sum = Sum(0);
    if (p.d[At::column_slope].at) clear(d_slopes, block_rows<T>);
  }
  void add(const Tile<T>& tile, T* x) {
    const QueryBlock<T>& block = tile.block;
    if (!block.p.in[At::column_term].at) return;
    for (extent k = 0; k < tile.keys; ++k) {
      for (extent n = 0; n < block.columns; n += lanes<T>) {
        T* at = x + k * block.columns + n;
        const Vector<T> term = between(tile, k, n);
        store<T>(at, load(at) + (block.p.in[At::column_slope].at ? load(slopes + n) * term : term));
      }
    }
  }

  void gather(const Tile<T>& tile, const T* dx) {
    const QueryBlock<T>& block = tile.block;
    const bool sloped = block.p.in[At::column_slope].at;
    for (extent k = 0; block.p.d[At::column_term].at && k < tile.keys; ++k) {
      Sum of_key[lanes<T>] = {};
      for (extent n = 0; n < block.columns; n += lanes<T>) {
        T gradient[lanes<T>];
        const Vector<T> given = load(dx + k * block.columns + n);
        store<T>(gradient, sloped ? load(slopes + n) * given : given);
        for (extent lane = 0; lane < lanes<T>; ++lane)
          of_key[lane] += Sum(gradient[lane]), row_sums[n + lane] += Sum(gradient[lane]);
      }
      Sum sum = of_key[0];
      for (extent lane = 1; lane < lanes<T>; ++lane) sum += of_key[lane];
      give(block, tile.first_key + k, sum);
    }
    for (extent k = 0; block.p.d[At::column_slope].at && k < tile.keys; ++k)
      for (extent n = 0; n < block.columns; n += lanes<T>)
        store<T>(d_slopes + n, load(d_slopes + n) + load(dx + k * block.columns + n) * between(tile, k, n));
  }
  void finish(const QueryBlock<T>& block, Pairing<T>&) {
    const Rows<T> to_slopes = block.p.d[At::column_slope];
    for (extent i = 0; block.p.d[At::column_term].at && i < block.rows && block.first_token() + i < block.p.keys; ++i)
      give(block, block.first_token() + i, -row_sums[i]);
    for (extent i = 0; to_slopes.at && i < block.rows; ++i)
      head_of(to_slopes, block.b, block.h)[block.first_query + i] = d_slopes[i];
  }
  using Program<T>::finish;

 private:
  // Adds x to the gradient of a key's column; the part that T does not hold goes to the gradient of the rest.
  void give(const QueryBlock<T>& block, extent key, Sum x) const {
    const Rows<T> held = block.p.d[At::column_term], rest = block.p.d[At::column_rest];
    T& of_key = head_of(held, block.b, block.h)[key];
    Sum sum = Sum(of_key) + x;
    if (rest.at) sum += Sum(head_of(rest, block.b, block.h)[key]);
    of_key = static_cast<T>(sum);
    if (rest.at) head_of(rest, block.b, block.h)[key] = static_cast<T>(sum - Sum(of_key));
  }
  // The term of key k of a tile for lanes from n on, at slopes of 1.
  Vector<T> between(const Tile<T>& tile, extent k, extent n) const {
    const auto of_key = [&](std::size_t which) {
      return splat(head_of(tile.block.p.in[which], tile.block.b, tile.block.h)[tile.first_key + k]);
    };
    const Vector<T> held = of_key(At::column_term) - load(own + n);
    return tile.block.p.in[At::column_rest].at ? held + (of_key(At::column_rest) - load(own_rest + n)) : held;
  }
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET

// Stick-breaking attention replaces the softmax: P = beta left, from the last key down.
//   beta = sigmoid(x), 0 where the key is not before the query      left_k = left_{k+1} (1 - beta_{k+1})
//   rest = what is left at the end; with rest_to_self it is the weight of the row's own key, which breaks nothing
// P sums to 1 or less by itself: there is no largest logit, no sum to divide by, and no o.do. The products replace the
// paper's sums of logarithms: 1 - beta is computed as beta e^-x, so in f32 it is 0 for x > 60. A product below
// `nothing_left` is 0, and so, exactly, are all that follow: once all rows of a block are there, its other tiles are
// skipped.
// Backward, with dx = P dP at log P:
//   dscore_k = dx_k - beta_k (dx_k + drest + sum_{l<k} dx_l)
// The sum runs up the keys, in the opposite direction (kept_scan.h).
#pragma once

#include "tensor/cpu/tiles/kept_scan.h"
#include "tensor/cpu/tiles/pairing.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> struct Stick {
  static constexpr double nothing_left = 1e-30;  // relative to 1; not so small that products with it are denormal
  bool backward, used_up;
  T *left, *rest;       // per lane: so far; at the end (backward)
  KeptScan<T> up_keys;  // of dx, from drest on; its factor is beta

  void take(Cutter<T>& cut, const Problem<T>& p, bool with_gradient) {
    used_up = false, backward = with_gradient;
    if (!p.stick) return;
    left = cut.take(block_rows<T>), rest = cut.take(block_rows<T>);
    up_keys.take(cut, p, backward);
  }
  void begin(const QueryBlock<T>& block) {
    const Problem<T>& p = block.p;
    if (!p.stick) return;
    used_up = false, up_keys.begin(block);
    for (extent i = 0; i < block.columns; ++i) {
      left[i] = T(i < block.rows ? 1 : 0);
      if (backward && i < block.rows)
        rest[i] = head_of(p.norms, block.b, block.h)[(block.first_query + i) * p.norms.row];
    }
  }

  // Logits x become P.
  void add(const Tile<T>& tile, T* x) {
    using V = Vector<T>;
    const QueryBlock<T>& block = tile.block;
    const extent columns = block.columns;
    const bool edge = tile.edge || tile.first_key + tile.keys > block.first_token();
    used_up = true;
    for (extent n = 0; n < columns; n += lanes<T>) {
      V rest_of_stick = load(left + n);
      for (extent k = tile.keys - 1; k >= 0; --k) {
        const extent at = k * columns + n;
        const V score = load(x + at);
        V beta = sigmoid<T>(score), remains = one_less_sigmoid(score, beta);
        if (edge) {
          const extent first_lane = max(tile.first_lane(k), tile.first_key + k - block.first_token() + 1);
          const Mask<T> before = lanes_between<T>(first_lane - n, tile.end_lane(k) - n);
          beta = before ? beta : zero<T>(), remains = before ? remains : splat(T(1));
        }
        store<T>(x + at, rest_of_stick * beta);
        if (backward) store<T>(up_keys.of_tile(tile, up_keys.factor) + at, beta);
        rest_of_stick = rest_of_stick * remains;
        rest_of_stick = rest_of_stick < splat(T(nothing_left)) ? zero<T>() : rest_of_stick;
      }
      store<T>(left + n, rest_of_stick);
      used_up = used_up && bits<T>(rest_of_stick != zero<T>()) == 0;
    }
    if (backward) each_own(tile, [&](extent i, extent at) { x[at] = rest[i]; });
  }

  // Writes the output, and the rest for backward. sums: of values [rows, width]
  void write(const QueryBlock<T>& block, const T* sums, extent width) const {
    const Problem<T>& p = block.p;
    for (extent i = 0; i < block.rows; ++i) {
      const extent row = block.first_query + i, token = p.first_row + row;
      T own = T(0);
      if (p.rest_to_self && sees_itself(block, i)) {
        own = T(1);
        if (p.draw) p.draw(p.stream, block.b, block.h, row, token, 1, &own);
        own = own * left[i];
      }
      T* to = head_of(p.output, block.b, block.h) + row * p.output.row;
      const T* value = head_of(p.in[At::value], block.b, block.h) + token * p.in[At::value].row;
      for (extent c = 0; c < p.value_dim; ++c) to[c] = sums[i * width + c];
      for (extent c = 0; own != T(0) && c < p.value_dim; ++c) to[c] += own * value[c];
      T* norm = head_of(p.norms, block.b, block.h) + row * p.norms.row;
      norm[0] = left[i], norm[1] = T(1);
    }
  }

  // P and dP become P and dx, with the factors of dropout; dx is kept.
  void add_gradient(const Tile<T>& tile, T* x, T* dx) {
    const extent columns = tile.block.columns;
    T* const kept = up_keys.of_tile(tile, up_keys.dx);
    up_keys.first = tile.first_key;
    drop(tile, dx);
    for (extent k = 0; k < tile.keys; ++k) {
      for (extent n = 0; n < columns; n += lanes<T>) {
        const extent at = k * columns + n;
        Vector<T> gradient = load(x + at) * load(dx + at);
        if (tile.edge) gradient = tile.seen(k, n / lanes<T>) ? gradient : zero<T>();
        store<T>(kept + at, gradient);
      }
    }
    drop(tile, x);
    each_own(tile, [&](extent i, extent at) { up_keys.sums[i] = kept[at], kept[at] = T(0); });
  }

  // Goes up the keys: dscore to queries and keys.
  void finish(const QueryBlock<T>& block, Pairing<T>& scores) {
    using V = Vector<T>;
    const T scale = scores.scale;
    up_keys.up(
        block, [=](V dx, V beta, V before, V sum) { return splat(scale) * (dx - beta * (dx + (before + sum))); },
        [&](const Tile<T>& tile, const T* dscore) { scores.gather(tile, dscore); });
  }

 private:
  // e^-x / (1 + e^-x), without the rounding of 1 - beta
  static Vector<T> one_less_sigmoid(Vector<T> x, Vector<T> beta) {
    if constexpr (has_vectors<T>)
      return beta * exponential<T>(-x);
    else
      return sigmoid<T>(-x);
  }
  static bool sees_itself(const QueryBlock<T>& block, extent i) {
    return !block.present() || block.present()[block.first_token() + i];
  }
  // Calls f(i, index in the tile) for the rows whose own key, which takes the rest, is in the tile.
  template <class F> static void each_own(const Tile<T>& tile, const F& f) {
    const QueryBlock<T>& block = tile.block;
    const extent first = max(0, tile.first_key - block.first_token());
    for (extent i = first; block.p.rest_to_self && i < min(block.rows, first + tile.keys); ++i)
      if (const extent k = block.first_token() + i - tile.first_key; k < tile.keys && sees_itself(block, i))
        f(i, k * block.columns + i);
  }
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET

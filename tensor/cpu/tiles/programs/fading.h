// The tile program of gates of pairs: a key fades by every gate between it and the query.  (forgetting, gates=pairs)
//   f = sigmoid(fade_query.fade_key), 1 where not seen         F_k = F_{k+1} + log f_{k+1},  0 at the last key
//   x_k += F_k
// Keys run down the tile, so that the sum is one addition of vectors per key. It grows from the query back: near the
// query, where it matters, it is small, and so is its rounding.
// Backward, with dx the gradient at the logits:  d log f_l = sum_{k<l} dx_k,  d logit of a gate = (1 - f) d log f
// The sum runs up the keys, in the opposite direction (kept_scan.h).
#pragma once

#include "tensor/cpu/tiles/programs/program.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> struct Fading : Program<T> {
  bool backward;
  Pairing<T> gates;
  T *logits, *sums;     // of a tile's gates; per lane: F so far
  KeptScan<T> up_keys;  // of dx; its factor is 1 - f

  void take(Cutter<T>& cut, const Problem<T>& p, bool with_gradient) {
    backward = with_gradient;
    gates.take(cut, p, p.in[At::fade_query], p.d[At::fade_query], At::fade_key, p.sizes['f' - 'a'], T(1), backward);
    if (!gates.query.at) return;
    logits = cut.take(tile_keys<T> * block_rows<T>);
    sums = cut.take(block_rows<T>), up_keys.take(cut, p, backward);
  }
  void head(const Problem<T>& p, extent b, extent h) { gates.head(p, b, h); }
  void block(const QueryBlock<T>& block) {
    if (!gates.query.at) return;
    gates.block(block);
    up_keys.begin(block), clear(sums, block_rows<T>);
  }

  void add(const Tile<T>& tile, T* x) {
    using V = Vector<T>;
    const extent columns = tile.block.columns;
    if (!gates.query.at) return;
    gates.products(tile, logits);
    T* const closed_of = backward ? up_keys.of_tile(tile, up_keys.factor) : nullptr;
    const T* const of_gates = logits;
    for (extent n = 0; n < columns; n += lanes<T>) {
      const V before = load(sums + n);
      V sum = zero<T>();  // of this tile
      for (extent k = tile.keys - 1; k >= 0; --k) {
        const extent at = k * columns + n;
        const V z = load(of_gates + at), power = exponential<T>(z > zero<T>() ? -z : z);  // e^-|z|
        V log_f = (z > zero<T>() ? zero<T>() : z) - log_of_1_and(power),
          closed = (z > zero<T>() ? power : splat(T(1))) / (splat(T(1)) + power);
        if (tile.edge) {
          const Mask<T> seen = tile.seen(k, n / lanes<T>);
          log_f = seen ? log_f : zero<T>(), closed = seen ? closed : zero<T>();
        }
        store<T>(x + at, load(x + at) + (before + sum));
        if (closed_of) store<T>(closed_of + at, closed);
        sum = sum + log_f;
      }
      store<T>(sums + n, before + sum);
    }
  }

  void gather(const Tile<T>& tile, const T* dx) {
    if (!gates.query.at) return;
    up_keys.first = tile.first_key;
    T* const kept = up_keys.of_tile(tile, up_keys.dx);
    for (extent n = 0, count = tile.keys * tile.block.columns; n < count; n += lanes<T>)
      store<T>(kept + n, load(dx + n));
  }
  void finish(const QueryBlock<T>& block, Pairing<T>&) {
    using V = Vector<T>;
    if (!gates.query.at) return;
    up_keys.up(
        block, [](V, V closed, V before, V sum) { return (before + sum) * closed; },
        [&](const Tile<T>& tile, const T* dx) { gates.gather(tile, dx); });
    gates.finish(block);
  }
  void finish(const Problem<T>& p, extent b, extent h) {
    if (gates.query.at) gates.finish(p, b, h);
  }

 private:
  // log(1 + u), 0 <= u <= 1:  2 artanh s = 2 (s + s^3/3 + s^5/5 + ...),  s = u / (2 + u) <= 1/3
  static Vector<T> log_of_1_and(Vector<T> u) {
    constexpr int last = sizeof(T) == 4 ? 13 : 33;
    const Vector<T> s = u / (splat(T(2)) + u), square = s * s;
    Vector<T> sum = zero<T>();
#pragma GCC unroll 20
    for (int n = last; n > 0; n -= 2) sum = sum * square + splat(T(2.0 / n));
    return sum * s;
  }
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET

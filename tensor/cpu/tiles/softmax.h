// Softmax over the keys of a tile, for all queries of a block at once, and its backward, shared by all programs.
#pragma once

#include "tensor/cpu/tiles/tile.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

// Cuts scratch memory into aligned parts.
template <class T> struct Cutter {
  T* at;
  extent taken = 0;
  T* take(extent count) {
    T* part = at ? at + taken : nullptr;
    taken += (count + 15) / 16 * 16;
    return part;
  }
};

template <class T> struct RunningSoftmax {
  // Per lane: the largest logit so far, the sum of powers, and the factor for earlier sums.
  T *top, *total, *factor;

  void take(Cutter<T>& cut) {
    top = cut.take(block_rows<T>), total = cut.take(block_rows<T>), factor = cut.take(block_rows<T>);
  }
  // sink: one more logit of each row, or null
  void begin(const T* sink = nullptr) {
    for (extent i = 0; i < block_rows<T>; ++i) top[i] = sink ? *sink : nothing<T>(), total[i] = T(sink ? 1 : 0);
  }
  // x becomes e^{x - top}, 0 where not seen. Returns true if an earlier top has risen.
  bool add(const Tile<T>& tile, T* x) const {
    using V = Vector<T>;
    const extent columns = tile.block.columns;
    bool risen = false;
    for (extent n = 0; n < columns; n += lanes<T>) {
      const V before = load(top + n);
      V highest = before;
      for (extent k = 0; k < tile.keys; ++k) {
        T* at = x + k * columns + n;
        V value = load(at);
        if (tile.edge) {
          value = tile.seen(k, n / lanes<T>) ? value : splat(nothing<T>());
          store<T>(at, value);
        }
        highest = larger<T>(highest, value);
      }
      const V fade = exponential<T>(before - highest);
      risen |= bits<T>(highest > before) != 0;
      V sum = zero<T>();  // of this tile alone: adding tiles to tiles rounds less than adding powers to all so far
      for (extent k = 0; k < tile.keys; ++k) {
        T* at = x + k * columns + n;
        V power = exponential<T>(load(at) - highest);
        if (tile.edge) power = tile.seen(k, n / lanes<T>) ? power : zero<T>();
        sum = sum + power;
        store<T>(at, power);
      }
      store<T>(top + n, highest), store<T>(total + n, load(total + n) * fade + sum), store<T>(factor + n, fade);
    }
    return risen;
  }
  // Scales earlier sums [rows, width] after a rise.
  void fade(extent rows, extent width, T* sums) const {
    for (extent i = 0; i < rows; ++i)
      for (extent c = 0; c < width; ++c) sums[i * width + c] *= factor[i];
  }
  // The factor for the sums of a row at the end: 0 if it sees nothing.
  T share(extent i) const { return total[i] > T(0) || total[i] != total[i] ? T(1) / total[i] : T(0); }
  // Writes o, top and share of a block, from sums of values [rows, width]. A row whose logits are all -inf is NaN, as
  // e^{-inf - -inf} is in softmax; a row that sees nothing is 0.
  void write(const QueryBlock<T>& block, const T* sums, extent width) const {
    const Problem<T>& p = block.p;
    for (extent i = 0; i < block.rows; ++i) {
      if (total[i] == T(0) && block.sees_any(i)) total[i] = T(__builtin_nanf(""));
      const extent row = block.first_query + i;
      T* to = head_of(p.output, block.b, block.h) + row * p.output.row;
      for (extent c = 0; c < p.value_dim; ++c) to[c] = sums[i * width + c] * share(i);
      T* norm = head_of(p.norms, block.b, block.h) + row * p.norms.row;
      norm[0] = top[i], norm[1] = share(i);
    }
  }
};

// Multiplies a tile of the pattern by the factors of dropout.
template <class T> static void drop(const Tile<T>& tile, T* x) {
  const QueryBlock<T>& block = tile.block;
  const Problem<T>& p = block.p;
  if (!p.draw) return;
  T kept[tile_keys<T>];
  for (extent i = 0; i < block.rows; ++i) {
    for (extent first = 0; first < tile.keys; first += tile_keys<T>) {
      const extent count = min(tile_keys<T>, tile.keys - first);
      p.draw(p.stream, block.b, block.h, block.first_query + i, tile.first_key + first, count, kept);
      for (extent k = 0; k < count; ++k) x[(first + k) * block.columns + i] *= kept[k];
    }
  }
}

// In double: o.do is subtracted from all dP of a row, and its error would reach every key with the same sign.
template <class T> static inline T dot(const T* a, const T* b, extent count) {
  if constexpr (has_vectors<T>) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (extent n = 0; n < count; ++n) sum += static_cast<double>(a[n]) * static_cast<double>(b[n]);
    return static_cast<T>(sum);
  } else {
    T sum = T(0);
    for (extent n = 0; n < count; ++n) sum += a[n] * b[n];
    return sum;
  }
}

// Per lane of a block in backward: P = share e^{x - top}, and o.do. Lanes without a query have share 0.
template <class T> struct RowNumbers {
  T *top, *share, *output_dot;

  void take(Cutter<T>& cut, extent count) {
    top = cut.take(count), share = cut.take(count), output_dot = cut.take(count);
  }
  RowNumbers from(extent lane) const { return {top + lane, share + lane, output_dot + lane}; }
  void read(const QueryBlock<T>& block) const {
    const Problem<T>& p = block.p;
    for (extent i = 0; i < block.columns; ++i) {
      top[i] = share[i] = output_dot[i] = T(0);
      if (i >= block.rows) continue;
      const extent row = block.first_query + i;
      const T* norm = head_of(p.norms, block.b, block.h) + row * p.norms.row;
      top[i] = norm[0], share[i] = norm[1];
      output_dot[i] = dot<T>(head_of(p.output, block.b, block.h) + row * p.output.row,
          head_of(p.output_gradient, block.b, block.h) + row * p.output_gradient.row, p.value_dim);
    }
  }
  // Returns the gradient of a sink, whose dP is 0.
  T of_sink(const QueryBlock<T>& block, T sink) const {
    T sum = T(0);
    for (extent n = 0; n < block.columns; n += lanes<T>)
      sum += sum_of_lanes<T>(exponential<T>(splat(sink) - load(top + n)) * load(share + n) * load(output_dot + n));
    return T(0) - sum;
  }
};

// Logits x become P, and dP becomes dx = P (dP - o.do): 0 where not seen. With a factor m of dropout P becomes m P, and
// dx = P (m dP - o.do).
template <class T> static void pattern_and_gradient(const Tile<T>& tile, const RowNumbers<T>& rows, T* x, T* dx) {
  using V = Vector<T>;
  const extent columns = tile.block.columns;
  drop(tile, dx);
  for (extent n = 0; n < columns; n += lanes<T>) {
    const V top = load(rows.top + n), share = load(rows.share + n), dot = load(rows.output_dot + n);
    for (extent k = 0; k < tile.keys; ++k) {
      const extent at = k * columns + n;
      V pattern = exponential<T>(load(x + at) - top) * share, gradient = pattern * (load(dx + at) - dot);
      if (tile.edge) {
        const Mask<T> seen = tile.seen(k, n / lanes<T>);
        pattern = seen ? pattern : zero<T>();
        gradient = seen ? gradient : zero<T>();
      }
      store<T>(x + at, pattern);
      store<T>(dx + at, gradient);
    }
  }
  drop(tile, x);
}

}  // namespace whence::tiles::WHENCE_TILES_TARGET

// One head at a time, forward and backward: the skeleton around the tile programs.
//   forward   for each block of queries, tiles from the last key down:  x = K q',  programs,  online softmax,  o += x' V
//   backward  the same tiles again:  P = e^{x - Z},  dx = P (V do' - o.do),  programs backward,
//             dv += P do,  dk += dx q,  dq += dx' K
// Backward sums dk and dv of a head over its blocks in their order, so that bits do not depend on who runs what.
#pragma once

#include "tensor/cpu/tiles/scan.h"
#include "tensor/cpu/tiles/softmax.h"
#include "tensor/cpu/tiles/terms.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

// ---- forward ----

template <class T> struct Forward {
  const Problem<T>& p;
  extent b, h, value_width;
  T *values, *queries, *gate_queries, *x, *gate_x, *output, *bin_sums, *distance, *relative, *scan_state, *places;
  RunningSoftmax<T> softmax;
  ByDistance<T> by_distance;
  ByRowAndDistance<T> by_row_and_distance;
  Scan<T> scan;

  Forward(const Problem<T>& problem, extent batch, extent head)
      : p(problem), b(batch), h(head), value_width(padded<T>(problem.value_dim)) {}

  extent layout(T* at) {
    const extent rows = block_rows<T>;
    Cutter<T> cut{at};
    values = cut.take(p.keys * padded<T>(p.value_dim));
    queries = cut.take(p.dim * rows);
    gate_queries = cut.take(p.gate_query ? p.dim * rows : 0);
    x = cut.take(tile_keys<T> * rows);
    gate_x = cut.take(p.gate_query ? tile_keys<T> * rows : 0);
    output = cut.take(rows * padded<T>(p.value_dim));
    bin_sums = cut.take(Bins<T>::size(p));
    distance = cut.take(ByDistance<T>::copy_size(p));
    relative = cut.take(ByRowAndDistance<T>::size(p, false));
    scan_state = cut.take(Scan<T>::size(p, false)), places = cut.take(p.scans ? tile_keys<T> * rows : 0);
    softmax.take(cut);
    return cut.taken;
  }

  void block_of(extent first_query, extent count) {
    const Block<T> block(p, b, h, first_query, count);
    pack_transposed(
        p.query.of(b, h) + first_query * p.query.row, p.query.row, count, p.dim, block.columns, p.scale, queries);
    if (p.gate_query)
      pack_transposed(p.gate_query.of(b, h) + first_query * p.gate_query.row, p.gate_query.row, count, p.dim,
          block.columns, p.gate_scale, gate_queries);
    softmax.begin();
    scan.begin(block, false);
    by_row_and_distance.begin(block, false);
    clear(output, block_rows<T> * value_width);
    clear(bin_sums, p.bins * block_rows<T>);
    tiles_down<T>(block.keys(), [&](extent first_key, extent keys) { tile_of(Tile<T>(block, first_key, keys)); });
    write(block);
  }

  void tile_of(const Tile<T>& tile) {
    const Block<T>& block = tile.block;
    products_of_pairs(tile, p.dim, p.key.of(b, h) + tile.first_key * p.key.row, p.key.row, queries, x);
    if (Scan<T>::runs(p)) {
      const T* scores = x;
      if (p.gate_query) {
        products_of_pairs(
            tile, p.dim, p.gate_key.of(b, h) + tile.first_key * p.gate_key.row, p.gate_key.row, gate_queries, gate_x);
        scores = gate_x;
      }
      scan.add(tile, scores, x, places, nullptr, nullptr);
    }
    by_distance.add(tile, x);
    by_row_and_distance.add(tile, x);
    add_column(tile, x);
    if (softmax.add(tile, x)) {
      softmax.fade(block.rows, value_width, output);
      softmax.fade(block.rows, p.bins, bin_sums);
    }
    drop(tile, x);
    sum_over_keys(tile, x, values + tile.first_key * value_width, value_width, value_width, output);
    if (Bins<T>::runs(p)) Bins<T>::add(tile, x, bin_sums);
  }

  void write(const Block<T>& block) const {
    softmax.write(block, output, value_width);
    for (extent i = 0; i < block.rows; ++i)
      for (extent n = 0; n < p.bins; ++n)
        p.bin_sums.of(b, h)[(block.first_query + i) * p.bin_sums.row + n] = bin_sums[i * p.bins + n] * softmax.share(i);
  }
};

template <class T> static extent forward_scratch(const Problem<T>& p) { return Forward<T>(p, 0, 0).layout(nullptr); }

template <class T>
static void forward(const Problem<T>& p, extent b, extent h, extent first_query, extent queries, T* scratch) {
  Forward<T> f(p, b, h);
  f.layout(scratch);
  const extent seen = p.causal ? least(p.keys, p.first_row + first_query + queries) : p.keys;
  pack_rows(p.value.of(b, h), p.value.row, seen, p.value_dim, f.value_width, f.values);
  f.by_distance.prepare(p, h, f.distance);
  f.by_row_and_distance.prepare(p, h, f.relative, false);
  f.scan.prepare(p, h, f.scan_state, false);
  for (extent first = first_query; first < first_query + queries; first += block_rows<T>)
    f.block_of(first, least(block_rows<T>, first_query + queries - first));
}

// ---- backward ----

// Queries and keys whose products are a tile, and the way back from the tile's gradient to them.
template <class T> struct Pairing {
  Rows<const T> query, key;
  Rows<T> d_query, d_key;
  extent dim, width;
  T scale;
  T *keys, *d_keys, *transposed, *rows, *d_rows;

  void take(Cutter<T>& cut, extent key_count) {
    if (!query) return;
    keys = cut.take(key_count * width), d_keys = cut.take(key_count * width);
    transposed = cut.take(dim * block_rows<T>), rows = cut.take(block_rows<T> * width);
    d_rows = cut.take(block_rows<T> * width);
  }
  void prepare(const Problem<T>& p, extent b, extent h) {
    pack_rows(key.of(b, h), key.row, p.keys, dim, width, keys);
    clear(d_keys, p.keys * width);
  }
  void begin(const Block<T>& block) {
    const T* from = query.of(block.b, block.h) + block.first_query * query.row;
    pack_transposed(from, query.row, block.rows, dim, block.columns, scale, transposed);
    pack_rows(from, query.row, block.rows, dim, width, rows);
    clear(d_rows, block_rows<T> * width);
  }
  void products(const Tile<T>& tile, T* x) const {
    products_of_pairs(tile, dim, keys + tile.first_key * width, width, transposed, x);
  }
  // dx: of the tile times scale
  void gather(const Tile<T>& tile, const T* dx) const {
    if (d_key) sum_over_queries(tile, dx, rows, width, d_keys + tile.first_key * width, width);
    if (d_query) sum_over_keys(tile, dx, keys + tile.first_key * width, width, width, d_rows);
  }
  void finish_block(const Block<T>& block) const {
    write(d_rows, block.rows, d_query ? d_query.of(block.b, block.h) + block.first_query * d_query.row : nullptr,
        d_query.row);
  }
  void finish(const Problem<T>& p, extent b, extent h) const {
    write(d_keys, p.keys, d_key ? d_key.of(b, h) : nullptr, d_key.row);
  }
  void write(const T* from, extent count, T* to, extent to_row) const {
    for (extent r = 0; to && r < count; ++r)
      for (extent c = 0; c < dim; ++c) to[r * to_row + c] = from[r * width + c];
  }
};

template <class T> static void scale_tile(const Tile<T>& tile, T scale, const T* from, T* to) {
  for (extent n = 0; n < tile.keys * tile.block.columns; n += lanes<T>) store<T>(to + n, load(from + n) * splat(scale));
}

template <class T> struct Backward {
  const Problem<T>& p;
  extent b, h, value_width;
  Pairing<T> scores, gates;
  T *values, *d_values, *x, *dx, *gate_x, *d_output_transposed, *d_output, *log_sum, *output_dot, *d_bins, *distance,
      *distance_sums, *relative, *scan_state;
  T *kept_gates, *kept_dx, *kept_dp, *places;  // of a row scan: [keys, block rows]; places of one tile
  ByDistance<T> by_distance;
  ByRowAndDistance<T> by_row_and_distance;
  Scan<T> scan;

  Backward(const Problem<T>& problem, extent batch, extent head)
      : p(problem),
        b(batch),
        h(head),
        value_width(padded<T>(p.value_dim)),
        scores{p.query, p.key, p.d_query, p.d_key, p.dim, padded<T>(p.dim), p.scale, {}, {}, {}, {}, {}},
        gates{p.gate_query, p.gate_key, p.d_gate_query, p.d_gate_key, p.dim, padded<T>(p.dim), p.gate_scale, {}, {}, {},
            {}, {}} {}

  extent layout(T* at) {
    const extent rows = block_rows<T>, tile = tile_keys<T> * rows;
    Cutter<T> cut{at};
    scores.take(cut, p.keys);
    gates.take(cut, p.keys);
    values = cut.take(p.keys * value_width), d_values = cut.take(p.keys * value_width);
    x = cut.take(tile), dx = cut.take(tile);
    gate_x = cut.take(p.gate_query ? tile : 0);
    d_output_transposed = cut.take(p.value_dim * rows), d_output = cut.take(rows * value_width);
    log_sum = cut.take(rows), output_dot = cut.take(rows);
    d_bins = cut.take(Bins<T>::size(p));
    distance = cut.take(ByDistance<T>::copy_size(p)), distance_sums = cut.take(ByDistance<T>::sums_size(p));
    relative = cut.take(ByRowAndDistance<T>::size(p, true));
    scan_state = cut.take(Scan<T>::size(p, true));
    const extent kept = p.scans ? (p.keys + tile_keys<T>)*rows : 0;
    kept_gates = cut.take(kept), kept_dx = cut.take(kept), kept_dp = cut.take(kept);
    places = cut.take(p.scans ? tile : 0);
    return cut.taken;
  }

  void run(T* scratch) {
    layout(scratch);
    scores.prepare(p, b, h);
    if (p.gate_query) gates.prepare(p, b, h);
    pack_rows(p.value.of(b, h), p.value.row, p.keys, p.value_dim, value_width, values);
    clear(d_values, p.keys * value_width);
    by_distance.prepare(p, h, distance);
    by_distance.prepare_sums(p, distance_sums);
    by_row_and_distance.prepare(p, h, relative, true);
    scan.prepare(p, h, scan_state, true);
    for (extent first = 0; first < p.queries; first += block_rows<T>)
      block_of(Block<T>(p, b, h, first, least(block_rows<T>, p.queries - first)));
    scores.finish(p, b, h);
    if (p.gate_query) gates.finish(p, b, h);
    if (p.d_value)
      for (extent k = 0; k < p.keys; ++k)
        for (extent c = 0; c < p.value_dim; ++c)
          p.d_value.of(b, h)[k * p.d_value.row + c] = d_values[k * value_width + c];
    by_distance.finish(p, b, h);
  }

  void block_of(const Block<T>& block) {
    scores.begin(block);
    if (p.gate_query) gates.begin(block);
    by_row_and_distance.begin(block, true);
    scan.begin(block, true);
    begin(block);
    extent active = block.keys();  // keys from here on have sums that move
    tiles_down<T>(block.keys(), [&](extent first_key, extent keys) {
      const Tile<T> tile(block, first_key, keys);
      const bool moving = p.scans && !scan.full;
      if (moving) active = first_key;
      gradient_of(tile, moving);
    });
    if (p.scans) {
      for (extent first = active; first < block.keys(); first += tile_keys<T>)
        gradient_of_gates(Tile<T>(block, first, least(tile_keys<T>, block.keys() - first)));
      scan.finish(block, scores.rows, scores.d_rows);
    }
    scores.finish_block(block);
    if (p.gate_query) gates.finish_block(block);
    by_row_and_distance.finish(block);
  }

  // The block's rows of the output's gradient, and o.do of each.
  void begin(const Block<T>& block) const {
    const T* from = p.output_gradient.of(b, h) + block.first_query * p.output_gradient.row;
    pack_transposed(from, p.output_gradient.row, block.rows, p.value_dim, block.columns, T(1), d_output_transposed);
    pack_rows(from, p.output_gradient.row, block.rows, p.value_dim, value_width, d_output);
    read_rows(block, log_sum, output_dot);
    for (extent i = 0; i < block.rows; ++i) {
      const extent row = block.first_query + i;
      for (extent n = 0; n < p.bins; ++n) {
        d_bins[i * p.bins + n] = p.bin_gradient.of(b, h)[row * p.bin_gradient.row + n];
        output_dot[i] += p.bin_sums.of(b, h)[row * p.bin_sums.row + n] * d_bins[i * p.bins + n];
      }
    }
  }

  void gradient_of(const Tile<T>& tile, bool moving) {
    const Block<T>& block = tile.block;
    const bool was_full = p.scans && scan.full;
    T* const gate = kept_gates + tile.first_key * block.columns;
    T* const dp = kept_dp + tile.first_key * block.columns;
    scores.products(tile, x);
    if (p.scans) {
      if (p.gate_query) gates.products(tile, gate_x);
      scan.add(tile, p.gate_query ? gate_x : x, x, places, gate, dp);
    }
    by_distance.add(tile, x);
    by_row_and_distance.add(tile, x);
    add_column(tile, x);
    products_of_pairs(tile, p.value_dim, values + tile.first_key * value_width, value_width, d_output_transposed, dx);
    if (Bins<T>::runs(p)) Bins<T>::read(tile, d_bins, dx);
    pattern_and_gradient(tile, log_sum, output_dot, x, dx);
    if (p.d_value)
      sum_over_queries(tile, x, d_output, value_width, d_values + tile.first_key * value_width, value_width);
    if (p.scans) {
      if (scan.by_table) scan.gather_table(tile, dx, places, was_full);
      if (moving) {
        T* const kept = kept_dx + tile.first_key * block.columns;
        Vector<T> slope_sum = zero<T>();
        for (extent n = 0; n < tile.keys * block.columns; n += lanes<T>) {
          const Vector<T> gradient = load(dx + n);
          store<T>(kept + n, gradient * splat(p.scale));
          if (!scan.by_table) slope_sum = slope_sum + gradient * load(places + n);
          store<T>(dp + n, load(dp + n) * gradient);
        }
        if (p.d_position_slopes) p.d_position_slopes[b * p.heads + h] += sum_of_lanes<T>(slope_sum);
      }
    }
    by_distance.gather(tile, dx);
    by_row_and_distance.gather(tile, dx);
    gather_column(tile, dx);
    if (moving) return;
    scale_tile(tile, p.scale, dx, dx);
    scores.gather(tile, dx);
  }

  void gradient_of_gates(const Tile<T>& tile) {
    const extent at = tile.first_key * tile.block.columns;
    scan.gather_gates(tile, kept_gates + at, kept_dp + at, x);
    T* const kept = kept_dx + at;
    if (p.gate_query) {
      scale_tile(tile, p.gate_scale, x, x);
      gates.gather(tile, x);
    } else {
      for (extent n = 0; n < tile.keys * tile.block.columns; n += lanes<T>)
        store<T>(kept + n, load(kept + n) + load(x + n) * splat(p.scale));
    }
    scores.gather(tile, kept);
  }
};

template <class T> static extent backward_scratch(const Problem<T>& p) { return Backward<T>(p, 0, 0).layout(nullptr); }
template <class T> static void backward(const Problem<T>& p, extent b, extent h, T* scratch) {
  Backward<T>(p, b, h).run(scratch);
}

}  // namespace whence::tiles::WHENCE_TILES_TARGET

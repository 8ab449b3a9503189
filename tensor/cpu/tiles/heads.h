// One head at a time, forward and backward: the skeleton around the tile programs.
//   forward   for each block of queries, tiles from the last key down:  x = K q',  programs,  online softmax,  o += x' V
//   backward  the same tiles again:  P = e^{x - Z},  dx = P (V do' - o.do),  programs backward,
//             dv += P do,  dk += dx q,  dq += dx' K
// Backward sums dk and dv of a head over its blocks in their order, so that bits do not depend on who runs what.
#pragma once

#include "tensor/cpu/tiles/programs.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

// ---- forward ----

template <class T> struct Forward {
  const Problem<T>& p;
  extent b, h, value_width;
  Pairing<T> scores;
  Programs<T> programs;
  RunningSoftmax<T> softmax;
  T *values, *x, *output;

  Forward(const Problem<T>& problem, extent batch, extent head)
      : p(problem), b(batch), h(head), value_width(padded<T>(problem.value_dim)) {}

  extent layout(T* at) {
    Cutter<T> cut{at};
    scores.take(cut, p, At::query, At::key, p.scale, false);
    values = cut.take(p.keys * value_width);
    x = cut.take(tile_keys<T> * block_rows<T>);
    output = cut.take(block_rows<T> * value_width);
    softmax.take(cut);
    programs.take(cut, p, false);
    return cut.taken;
  }

  void run(extent first_query, extent queries, T* scratch) {
    layout(scratch);
    const extent seen = p.causal ? least(p.keys, p.first_row + first_query + queries) : p.keys;
    pack_rows(p.in[At::value].of(b, h), p.in[At::value].row, seen, p.value_dim, value_width, values);
    scores.head(p, b, h);
    programs.head(p, b, h);
    for (extent first = first_query; first < first_query + queries; first += block_rows<T>)
      block_of(Block<T>(p, b, h, first, least(block_rows<T>, first_query + queries - first)));
  }

  void block_of(const Block<T>& block) {
    scores.block(block);
    softmax.begin();
    programs.block(block);
    clear(output, block_rows<T> * value_width);
    tiles_down<T>(block.keys(), [&](extent first_key, extent keys) { tile_of(Tile<T>(block, first_key, keys)); });
    softmax.write(block, output, value_width);
    programs.write(block, softmax);
  }

  void tile_of(const Tile<T>& tile) {
    const Block<T>& block = tile.block;
    scores.products(tile, x);
    programs.add(tile, x);
    if (softmax.add(tile, x)) {
      softmax.fade(block.rows, value_width, output);
      programs.fade(block, softmax);
    }
    drop(tile, x);
    sum_over_keys(tile, x, values + tile.first_key * value_width, value_width, value_width, output);
    programs.sum(tile, x);
  }
};

template <class T> static extent forward_scratch(const Problem<T>& p) { return Forward<T>(p, 0, 0).layout(nullptr); }
template <class T>
static void forward(const Problem<T>& p, extent b, extent h, extent first_query, extent queries, T* scratch) {
  Forward<T>(p, b, h).run(first_query, queries, scratch);
}

// ---- backward ----

template <class T> struct Backward {
  const Problem<T>& p;
  extent b, h, value_width;
  Pairing<T> scores;
  Programs<T> programs;
  T *values, *d_values, *x, *dx, *d_output_transposed, *d_output, *log_sum, *output_dot;

  Backward(const Problem<T>& problem, extent batch, extent head)
      : p(problem), b(batch), h(head), value_width(padded<T>(problem.value_dim)) {}

  extent layout(T* at) {
    const extent rows = block_rows<T>, tile = tile_keys<T> * rows;
    Cutter<T> cut{at};
    scores.take(cut, p, At::query, At::key, p.scale, true);
    values = cut.take(p.keys * value_width), d_values = cut.take(p.keys * value_width);
    x = cut.take(tile), dx = cut.take(tile);
    d_output_transposed = cut.take(p.value_dim * rows), d_output = cut.take(rows * value_width);
    log_sum = cut.take(rows), output_dot = cut.take(rows);
    programs.take(cut, p, true);
    return cut.taken;
  }

  void run(T* scratch) {
    layout(scratch);
    pack_rows(p.in[At::value].of(b, h), p.in[At::value].row, p.keys, p.value_dim, value_width, values);
    clear(d_values, p.keys * value_width);
    scores.head(p, b, h);
    programs.head(p, b, h);
    for (extent first = 0; first < p.queries; first += block_rows<T>)
      block_of(Block<T>(p, b, h, first, least(block_rows<T>, p.queries - first)));
    scores.finish(p, b, h);
    programs.finish(p, b, h);
    if (const Rows<T> to = p.d[At::value])
      for (extent k = 0; k < p.keys; ++k)
        for (extent c = 0; c < p.value_dim; ++c) to.of(b, h)[k * to.row + c] = d_values[k * value_width + c];
  }

  void block_of(const Block<T>& block) {
    scores.block(block);
    programs.block(block);
    const T* from = p.output_gradient.of(b, h) + block.first_query * p.output_gradient.row;
    pack_transposed(from, p.output_gradient.row, block.rows, p.value_dim, block.columns, T(1), d_output_transposed);
    pack_rows(from, p.output_gradient.row, block.rows, p.value_dim, value_width, d_output);
    read_rows(block, log_sum, output_dot);
    programs.add_output_dot(block, output_dot);
    tiles_down<T>(block.keys(), [&](extent first_key, extent keys) { tile_of(Tile<T>(block, first_key, keys)); });
    programs.finish(block, scores);
    scores.finish(block);
  }

  void tile_of(const Tile<T>& tile) {
    scores.products(tile, x);
    programs.add(tile, x);
    products_of_pairs(tile, p.value_dim, values + tile.first_key * value_width, value_width, d_output_transposed, dx);
    programs.add_gradient(tile, dx);
    pattern_and_gradient(tile, log_sum, output_dot, x, dx);
    if (p.d[At::value])
      sum_over_queries(tile, x, d_output, value_width, d_values + tile.first_key * value_width, value_width);
    programs.gather(tile, dx);
    if (programs.keeps(tile, dx)) return;
    for (extent n = 0; n < tile.keys * tile.block.columns; n += lanes<T>)
      store<T>(dx + n, load(dx + n) * splat(p.scale));
    scores.gather(tile, dx);
  }
};

template <class T> static extent backward_scratch(const Problem<T>& p) { return Backward<T>(p, 0, 0).layout(nullptr); }
template <class T> static void backward(const Problem<T>& p, extent b, extent h, T* scratch) {
  Backward<T>(p, b, h).run(scratch);
}

}  // namespace whence::tiles::WHENCE_TILES_TARGET

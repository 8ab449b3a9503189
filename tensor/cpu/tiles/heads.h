// One head at a time, forward and backward: the skeleton around the tile programs.
//   forward   for each block of queries, tiles from the last key down:  x = K q',  programs,  online softmax,  o += x' V
//   backward  the same tiles again:  P = share e^{x - top},  dx = P (V do' - o.do),  programs backward,
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
    scores.head(p, b, h), programs.head(p, b, h);
    for (extent first = first_query; first < first_query + queries; first += block_rows<T>)
      block_of(Block<T>(p, b, h, first, least(block_rows<T>, first_query + queries - first)));
  }

  void block_of(const Block<T>& block) {
    scores.block(block), softmax.begin(), programs.block(block);
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
  extent b, h;
  Pairing<T> scores, outputs;  // q and k; do and v, whose products are dP and whose tile is P
  Programs<T> programs;
  T *x, *dx;
  RowNumbers<T> row_numbers;

  Backward(const Problem<T>& problem, extent batch, extent head) : p(problem), b(batch), h(head) {}

  extent layout(T* at) {
    Cutter<T> cut{at};
    scores.take(cut, p, At::query, At::key, p.scale, true);
    outputs.take(cut, p, p.output_gradient, {}, At::value, p.value_dim, T(1), true);
    x = cut.take(tile_keys<T> * block_rows<T>), dx = cut.take(tile_keys<T> * block_rows<T>);
    row_numbers.take(cut, block_rows<T>);
    programs.take(cut, p, true);
    return cut.taken;
  }

  void run(T* scratch) {
    layout(scratch);
    scores.head(p, b, h), outputs.head(p, b, h), programs.head(p, b, h);
    for (extent first = 0; first < p.queries; first += block_rows<T>)
      block_of(Block<T>(p, b, h, first, least(block_rows<T>, p.queries - first)));
    scores.finish(p, b, h), outputs.finish(p, b, h), programs.finish(p, b, h);
  }

  void block_of(const Block<T>& block) {
    scores.block(block), outputs.block(block), programs.block(block);
    row_numbers.read(block);
    programs.add_output_dot(block, row_numbers.output_dot);
    tiles_down<T>(block.keys(), [&](extent first_key, extent keys) { tile_of(Tile<T>(block, first_key, keys)); });
    programs.finish(block, scores);
    scores.finish(block);
  }

  void tile_of(const Tile<T>& tile) {
    scores.products(tile, x);
    programs.add(tile, x);
    outputs.products(tile, dx);
    programs.add_gradient(tile, dx);
    pattern_and_gradient(tile, row_numbers, x, dx);
    outputs.gather(tile, x);
    programs.gather(tile, dx);
    if (programs.keeps(tile, dx)) return;
    scale_tile(tile, p.scale, dx);
    scores.gather(tile, dx);
  }
};

template <class T> static extent backward_scratch(const Problem<T>& p) { return Backward<T>(p, 0, 0).layout(nullptr); }
template <class T> static void backward(const Problem<T>& p, extent b, extent h, T* scratch) {
  Backward<T>(p, b, h).run(scratch);
}

}  // namespace whence::tiles::WHENCE_TILES_TARGET

// One head at a time, forward and backward: the skeleton around the tile programs.
//   forward   for each block of queries, tiles from the last key down:  x = K q',  programs,  online softmax, o += x' V
//   backward  the same tiles again:  P = share e^{x - top},  dx = P (V do' - o.do),  programs backward,
//             dv += P do,  dk += dx q,  dq += dx' K
// Stick-breaking replaces the softmax if p.stick (stick.h).
// Backward sums dk and dv of a head over its blocks in order, so that bits do not depend on the threads.
#pragma once

#include "tensor/cpu/tiles/programs.h"
#include "tensor/cpu/tiles/stick.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

// ---- forward ----

template <class T> struct Forward {
  const Problem<T>& p;
  extent b, h, value_width;
  Pairing<T> scores;
  Programs<T> programs;
  RunningSoftmax<T> softmax;
  Stick<T> stick;
  T *values, *x, *output;

  Forward(const Problem<T>& problem, extent batch, extent head)
      : p(problem), b(batch), h(head), value_width(padded<T>(problem.value_dim)) {}

  extent layout(T* at) {
    Cutter<T> cut{at};
    scores.take(cut, p, At::query, At::key, p.scale, false);
    values = cut.take(p.keys * value_width);
    x = cut.take(tile_keys<T> * block_rows<T>);
    output = cut.take(block_rows<T> * value_width);
    softmax.take(cut), stick.take(cut, p, false);
    programs.take(cut, p, false);
    return cut.taken;
  }

  void run(extent first_query, extent queries, T* scratch) {
    layout(scratch);
    const extent seen = min(p.keys, p.first_row + first_query + queries + p.after);
    pack_rows(head_of(p.in[At::value], b, h), p.in[At::value].row, seen, p.value_dim, value_width, values);
    scores.head(p, b, h), programs.head(p, b, h);
    for (extent first = first_query; first < first_query + queries; first += block_rows<T>)
      block_of(QueryBlock<T>(p, b, h, first, min(block_rows<T>, first_query + queries - first)));
  }

  void block_of(const QueryBlock<T>& block) {
    scores.block(block), softmax.begin(head_of(p.in[At::sink], 0, h)), stick.begin(block), programs.block(block);
    clear(output, block_rows<T> * value_width);
    tiles_down<T>(block, [&](extent first_key, extent keys) { tile_of(Tile<T>(block, first_key, keys)); });
    if (p.stick) return stick.write(block, output, value_width);
    softmax.write(block, output, value_width);
    programs.write(block, softmax);
  }

  void tile_of(const Tile<T>& tile) {
    const QueryBlock<T>& block = tile.block;
    if (stick.used_up) return;
    scores.products(tile, x);
    programs.add(tile, x);
    if (p.stick) {
      stick.add(tile, x);
    } else if (softmax.add(tile, x)) {
      softmax.fade(block.rows, value_width, output);
      programs.fade(block, softmax);
    }
    drop(tile, x);
    sum_over_keys(tile, x, values + tile.first_key * value_width, value_width, value_width, output);
    programs.sum(tile, x);
  }
};

// ---- backward ----

template <class T> struct Backward {
  const Problem<T>& p;
  extent b, h;
  Pairing<T> scores, outputs;  // q and k; do and v: their products are dP, their tile is P
  Programs<T> programs;
  T *x, *dx;
  RowNumbers<T> row_numbers;
  Stick<T> stick;

  Backward(const Problem<T>& problem, extent batch, extent head) : p(problem), b(batch), h(head) {}

  extent layout(T* at) {
    Cutter<T> cut{at};
    scores.take(cut, p, At::query, At::key, p.scale, true);
    outputs.take(cut, p, p.output_gradient, {}, At::value, p.value_dim, T(1), true);
    x = cut.take(tile_keys<T> * block_rows<T>), dx = cut.take(tile_keys<T> * block_rows<T>);
    row_numbers.take(cut, block_rows<T>), stick.take(cut, p, true);
    programs.take(cut, p, true);
    return cut.taken;
  }

  void run(T* scratch) {
    layout(scratch);
    scores.head(p, b, h), outputs.head(p, b, h), programs.head(p, b, h);
    for (extent first = 0; first < p.queries; first += block_rows<T>)
      block_of(QueryBlock<T>(p, b, h, first, min(block_rows<T>, p.queries - first)));
    scores.finish(p, b, h), outputs.finish(p, b, h), programs.finish(p, b, h);
  }

  void block_of(const QueryBlock<T>& block) {
    scores.block(block), outputs.block(block), programs.block(block);
    row_numbers.read(block), stick.begin(block);
    programs.add_output_dot(block, row_numbers.output_dot);
    if (const Rows<T> to = p.d[At::sink]; to.at)
      *head_of(to, b, h) += row_numbers.of_sink(block, *head_of(p.in[At::sink], 0, h));
    tiles_down<T>(block, [&](extent first_key, extent keys) { tile_of(Tile<T>(block, first_key, keys)); });
    if (p.stick) stick.finish(block, scores);
    programs.finish(block, scores);
    scores.finish(block);
  }

  void tile_of(const Tile<T>& tile) {
    if (p.stick) return tile_of_stick(tile);
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
  void tile_of_stick(const Tile<T>& tile) {
    if (stick.used_up) return;
    scores.products(tile, x);
    stick.add(tile, x);
    outputs.products(tile, dx);
    stick.add_gradient(tile, x, dx);
    outputs.gather(tile, x);
  }
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET

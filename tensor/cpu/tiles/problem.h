// Tiled attention as the tile programs see it: addresses and extents. Compiled once for each instruction set
// (vector.h), so this is plain data and no function, not even a constructor: a linker keeps one copy of an inline
// function for all files, which could be the one for the newest machine. tests/tensor/cpu/tiles/shared_functions checks
// this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/tiled_operands.h"

namespace whence::tiles {

using extent = std::int64_t;
using At = TiledOperands;

inline constexpr extent last_step = INT32_MAX - 1;  // later than any step that a block enters

// Rows of numbers [batch, head, row, column]; columns are contiguous.
template <class T> struct Rows {
  T* at;                    // null: no rows
  extent batch, head, row;  // strides
  extent group;             // number of query heads that share a head of these; 0: each has its own
};

template <class T> struct Problem {
  extent batch, heads, queries, keys, dim, value_dim, distances, positions;
  extent sizes[26];                     // by the letters of tensor/tiled_operands.h; -1: none
  Rows<const T> in[At::operand_count];  // null if undefined
  T scale, relative_scale, gate_scale, position_scale;
  bool stick, rest_to_self;
  extent first_row, before, after;  // as in Band (tensor/pairs.h)
  const bool* present;              // [b j] or null
  // norms: top and share, the largest logit m of a row and 1 / sum_j e^{A_ij - m}; of a stick its rest, and 1
  Rows<T> output, norms;

  extent lowest;                              // the step that row 0 of a table by distance holds
  const std::int64_t *query_step, *key_step;  // null: first_row + i, j
  extent query_step_batch, key_step_batch;
  const std::int64_t* bin_of;
  extent bins;
  Rows<T> bin_sums;  // [b h i bins]

  // Writes 1/(1-p) for each key of [first, first + count) that dropout keeps, else 0. Null: no dropout.
  void (*draw)(const void* stream, extent b, extent h, extent row, extent first, extent count, T* kept);
  const void* stream;

  // Backward: the gradient of the output, of bin_sums and of every operand; null if it is not wanted. Operands that are
  // shared by batch or heads have [b h ...] here, rows padded to whole vectors: each task adds to its own part, which
  // the caller has cleared and sums in order.
  Rows<const T> output_gradient, bin_gradient;
  Rows<T> d[At::operand_count];

  // The head mix. Rows of q, k, v and of their gradients are padded to whole vectors. mix_table and distance_table are
  // padded on both sides, so that a block reads them along its lanes: [left + 1, width, mix_distances], and a row for
  // each head. Gradients of these two, of mix_input and of mix_output have the operand's axes after b.
  extent width, kernel, left, right, mix_lowest, mix_distances, behind;
  extent channels;  // of the first convolution: the scores of all heads, and their pieces if there are any
  bool remask, adds_pieces;
  T slope;
  // Blocks of queries add to the same keys and distances, one behind the other: enter(step) waits until the block
  // before has left that step.
  void (*enter)(void* order, extent b, extent block, extent step);
  void (*leave)(void* order, extent b, extent block, extent step);
  void* order;
};

// The functions of one instruction set for one type of numbers.
template <class T> struct Functions {
  // One head at a time. `scratch` has at least scratch(problem) numbers, aligned to 64.
  extent (*forward_scratch)(const Problem<T>&);
  void (*forward)(const Problem<T>&, extent b, extent h, extent first_query, extent queries, T* scratch);
  extent (*backward_scratch)(const Problem<T>&);
  void (*backward)(const Problem<T>&, extent b, extent h, T* scratch);
  // The head mix: all heads of `mix_block` queries in forward, of `mix_rows` in backward.
  extent mix_block, mix_rows;
  extent (*mix_forward_scratch)(const Problem<T>&);
  void (*mix_forward)(const Problem<T>&, extent b, extent first_query, T* scratch);
  extent (*mix_backward_scratch)(const Problem<T>&);
  void (*mix_backward)(const Problem<T>&, extent b, extent block, T* scratch);
};

// One for each instruction set, chosen at run time: one program runs everywhere. T: float or double.
template <class T> Functions<T> of_avx512();
template <class T> Functions<T> of_avx2();
template <class T> Functions<T> of_plain();
template <class T> Functions<T> of_dual();  // on every machine; T: Dual

}  // namespace whence::tiles

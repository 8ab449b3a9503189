// Tiled attention as the tile programs see it: addresses and extents. Compiled once for each instruction set
// (vector.h); what stands here is plain data, so that no code of a newer instruction set can get into older code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace whence::tiles {

using extent = std::int64_t;

inline constexpr extent last_step = INT32_MAX - 1;  // of a block that enters a step after the other

// Rows of numbers [batch, head, row, column], columns side by side.
template <class T> struct Rows {
  T* at = nullptr;
  extent batch = 0, head = 0, row = 0;  // strides
  T* of(extent b, extent h) const { return at + b * batch + h * head; }
  explicit operator bool() const { return at != nullptr; }
};

template <class T> struct Problem {
  extent batch, heads, queries, keys, dim, value_dim;
  T scale;
  bool causal;
  extent first_row;
  const bool* present;  // [b j] or null

  Rows<const T> query, key, value;
  Rows<T> output, log_sum;  // log_sum: one column

  // by distance, and what else reads distances
  extent lowest, distances;                   // steps of row 0, rows
  const std::int64_t *query_step, *key_step;  // null: first_row + i, j
  extent query_step_batch, key_step_batch;
  Rows<const T> distance_table;  // head, one row each
  Rows<const T> relative_query, relative_keys;
  T relative_scale;
  Rows<const T> column_term;  // one row
  const std::int64_t* bin_of;
  extent bins;
  Rows<T> bin_sums;  // [b h i bins]

  // row scan
  bool scans;
  T gate_scale;
  Rows<const T> gate_query, gate_key, position_logits, position_keys;
  extent positions;  // columns of position_logits, rows of position_keys
  T position_scale;
  const T* position_slopes;

  // head mix. Rows of q, k, v and of their gradients are padded to whole vectors. Tables have room on both sides, so
  // that a block reads them along its lanes: [left + 1, width, mix_distances], and one row for each head.
  extent width, kernel, left, right, mix_lowest, mix_distances, behind;
  bool remask;
  T slope;
  const T *mix_input, *mix_table, *mix_output, *mix_residual;

  // Writes for keys [first, first + count) of a row 1/(1-p) where the pattern stays, else 0. Null: all stay.
  void (*draw)(const void* stream, extent b, extent h, extent row, extent first, extent count, T* kept);
  const void* stream;

  // backward: the gradient of the output and of bin_sums, and of every operand (null: not asked for)
  Rows<const T> output_gradient, bin_gradient;
  Rows<T> d_query, d_key, d_value, d_relative_query, d_column_term, d_gate_query, d_gate_key, d_position_logits;
  // Sums over tasks: each task adds to its own part, which the caller has cleared and adds up in order.
  Rows<T> d_distance_table;  // [b h n]
  Rows<T> d_relative_keys;   // [b h n d]
  Rows<T> d_position_keys;   // [b h n d], without the scale
  T* d_position_slopes;      // [b h]
  // [b, ...]; d_mix_residual like mix_residual
  T *d_mix_input, *d_mix_table, *d_mix_output, *d_mix_residual;
  // Blocks of queries add to the same keys and distances, one behind the other: whoever enters a step up the keys has
  // waited until the block before it has left that step.
  void (*enter)(void* turns, extent b, extent block, extent step);
  void (*leave)(void* turns, extent b, extent block, extent step);
  void* turns;
};

// What one instruction set offers for one type of numbers.
template <class T> struct Functions {
  // One head at a time: all programs but the head mix. `scratch` is at least scratch(problem) numbers, aligned to 64.
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

}  // namespace whence::tiles

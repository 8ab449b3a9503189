// Which calls of attention in tiles a GPU has programs for (cuda/kernels/tiles/): heads of f16, bf16 or f32 with tables by
// distance, columns, a sink, dropout, and sums of gates, of their own scores or of others. What else there is runs there as composed ops.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "tensor/tiles/attention_kernel.h"

namespace whence {

constexpr index_t widest_head_on_gpu = 128, most_positions_on_gpu = 128;
// Rows of a block of these kernels: what scratch follows from.
constexpr index_t rows_of_gpu_block(index_t head_dim, DType dtype) {
  return head_dim <= 64 && dtype != DType::f32 ? 128 : 64;
}
// Attention of few queries has its keys in parts, a block for each. A part has whole tiles of keys and of gates.
constexpr int most_queries_of_parts = 16, keys_of_part = 128;
constexpr index_t parts_of_keys(index_t queries, index_t keys) {
  return queries <= most_queries_of_parts && keys > keys_of_part ? (keys + keys_of_part - 1) / keys_of_part : 0;
}
// Places of a row of positions, of two numbers each: neighbouring rows begin four banks apart.
constexpr index_t pitch_of_positions(index_t positions) { return (positions + 27) / 32 * 32 + 4; }
// Bytes of shared memory that blocks of 64 rows take: rows and tiles, terms, and pairs of positions; of the gradient of queries slots
// of positions, too, and diagonals where a table's gradient is summed. others: gates have rows and tiles of their own.
constexpr index_t shared_bytes_of_tiles(DType dtype, index_t head_dim, index_t positions, bool table, bool others) {
  const auto size = static_cast<index_t>(size_of(dtype)), of_sum = static_cast<index_t>(size_of(compute_dtype(dtype))),
             of_width = (head_dim <= 64 ? 64 : 128) * size,
             places = positions > 0 ? 64 * pitch_of_positions(positions) : 0;
  return std::max((others ? 512 : 320) * of_width + 672 * of_sum + places * 2 * size,
      (others ? 384 : 256) * of_width + 384 * of_sum + places * 2 * (size + of_sum) + (table ? 4 * 672 * of_sum : 0));
}
// True if these operands have sums of gates.
[[nodiscard]] inline bool reads_gates(std::span<const Tensor> x) {
  using At = TiledOperands;
  return x[At::position_logits].defined() || x[At::position_keys].defined() || x[At::position_slopes].defined();
}
// Sums of a table's gradient, by blocks of queries, are made for as many heads at a time as fit into so much.
constexpr index_t most_slice_bytes = index_t(256) << 20;

// Numbers of a head's sums: by blocks, in each by chains of warps whose rows are 32 apart.
constexpr int chains_of_gpu_block(index_t rows) { return static_cast<int>(128 / rows); }
constexpr index_t slice_numbers(index_t queries, index_t keys, index_t rows) {
  return (queries + rows - 1) / rows * chains_of_gpu_block(rows) * (keys + rows);
}

// Why there is no program, as "what is given; what is required"; empty where there is one. x: the
// operands, in their order.
[[nodiscard]] std::string gpu_refusal(const TiledFacts& at, std::span<const Tensor> x);

}  // namespace whence

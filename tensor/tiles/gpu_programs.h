// The calls of tiled attention that a GPU has programs for (cuda/kernels/tiles/). Attention: heads of f16, bf16 or f32
// with tables by distance, columns, a sink, dropout, and either sums of gates (of their own scores or of others) or
// relative keys, with sums over bins. Head mixes: f16 or bf16, with pieces too. Other calls run as composed ops.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "tensor/tiled_call.h"

namespace whence {

constexpr index_t widest_head_on_gpu = 128, most_positions_on_gpu = 128, most_bins_on_gpu = 256;
// Rows of a block of these kernels. Their scratch depends on it.
constexpr index_t rows_of_gpu_block(index_t head_dim, DType dtype) {
  return head_dim <= 64 && dtype != DType::f32 ? 128 : 64;
}
// Attention of few queries splits its keys into parts, a block for each. A part has whole tiles of keys and of gates.
constexpr int most_queries_of_parts = 16, keys_of_part = 128;
constexpr index_t parts_of_keys(index_t queries, index_t keys) {
  return queries <= most_queries_of_parts && keys > keys_of_part ? (keys + keys_of_part - 1) / keys_of_part : 0;
}
// The pitch of a row of positions, of two numbers each: neighbouring rows begin four banks apart.
constexpr index_t pitch_of_positions(index_t positions) { return (positions + 27) / 32 * 32 + 4; }
// Returns the bytes of shared memory that a block of 64 rows takes: rows and tiles, terms, and pairs of positions; for
// the gradient of queries also slots of positions, and diagonals if a table's gradient is summed. others: gates have
// their own rows and tiles.
constexpr index_t shared_bytes_of_tiles(DType dtype, index_t head_dim, index_t positions, bool table, bool others) {
  const auto size = static_cast<index_t>(size_of(dtype)), of_sum = static_cast<index_t>(size_of(compute_dtype(dtype))),
             of_width = (head_dim <= 64 ? 64 : 128) * size,
             places = positions > 0 ? 64 * pitch_of_positions(positions) : 0;
  return std::max((others ? 512 : 320) * of_width + 672 * of_sum + places * 2 * size,
      (others ? 384 : 256) * of_width + 384 * of_sum + places * 2 * (size + of_sum) + (table ? 4 * 672 * of_sum : 0));
}
// The same for relative keys: bands of them, and their products with the rows or columns of each warp.
constexpr index_t shared_bytes_of_relative_tiles(DType dtype, index_t head_dim, index_t bins, bool table) {
  const index_t of_sum = static_cast<index_t>(size_of(compute_dtype(dtype))),
                of_width = (head_dim <= 64 ? 64 : 128) * static_cast<index_t>(size_of(dtype)),
                keys = of_width > 128 ? 32 : 64;  // of a tile of forward
  return std::max({(192 + 6 * keys) * of_width + (70 * keys + 1312 + 64 * bins) * of_sum,
      512 * of_width + (384 + 6208) * of_sum, 448 * of_width + (384 + 3072 + (table ? 4 * 672 : 0)) * of_sum});
}
// True if these operands include sums of gates.
[[nodiscard]] inline bool reads_gates(std::span<const Tensor> x) {
  using At = TiledOperands;
  return x[At::position_logits].defined() || x[At::position_keys].defined() || x[At::position_slopes].defined();
}
// A table's gradient is summed by blocks of queries, for as many heads at a time as fit into these bytes.
constexpr index_t most_slice_bytes = index_t(256) << 20;

// Numbers of one head's sums: by blocks, and in each block by chains of warps whose rows are 32 apart.
constexpr int chains_of_gpu_block(index_t rows) { return static_cast<int>(128 / rows); }
constexpr index_t slice_numbers(index_t queries, index_t keys, index_t rows) {
  return (queries + rows - 1) / rows * chains_of_gpu_block(rows) * (keys + rows);
}

// ---- The head mix: all pairs of a group of rows are in scratch at once (cuda/kernels/tiles/mix_pairs.h).
constexpr index_t most_mix_heads = 16, most_mix_hidden = 32, most_mix_pieces = 64;
constexpr std::size_t shared_bytes_of_mix_pieces = 124544;  // of a block, if there are pieces
constexpr int mix_strip = 64;                               // rows whose pairs are stored for the same keys
// Blocks of threads have 64 rows and walk over mix_walk_keys keys each. The walks cover all keys and eight on either
// side, and the first warp begins 64 keys before a multiple. Each of four warps has its own slices of the sums: all
// weights, and mix_slice_rows distances.
constexpr int mix_walk_keys = 128, mix_walk_warps = 4, mix_slice_rows = mix_walk_keys + 8;
constexpr index_t mix_walks(index_t keys) { return (keys + 64 + 72 + mix_walk_keys - 1) / mix_walk_keys; }

// A group of rows that are worked on together: all rows of some sequences, or some rows of one.
struct MixScratch {
  index_t sequences, rows;  // rows: of a sequence, whole strips
};
// bytes: the limit on scratch for the pairs; at least one strip is taken. bytes_of_row: of a query's pairs with all
// keys.
constexpr MixScratch mix_scratch(index_t bytes, index_t batch, index_t queries, index_t bytes_of_row) {
  const auto parts = [](index_t n, index_t each) { return (n + each - 1) / each; };
  const index_t rows = parts(queries, mix_strip) * mix_strip, most = bytes / std::max<index_t>(bytes_of_row, 1);
  if (rows > most) {
    const index_t groups = parts(rows, std::max<index_t>(most, mix_strip));
    return {1, parts(parts(rows, groups), mix_strip) * mix_strip};
  }
  return {parts(batch, parts(batch, most / rows)), rows};
}

// Returns why there is no program, as "what is given; what is required", or an empty text. x: the operands, in their
// order.
[[nodiscard]] std::string gpu_refusal(const TiledCall& at, std::span<const Tensor> x);

}  // namespace whence

// The operands of attention in tiles, one row each: names in errors, checks of shapes, addresses and the layout of
// gradients follow from it, in the op and on every device. Plain data: vector code includes it (tensor/cpu/tiles/).
#pragma once

#include <cstddef>

namespace whence {

struct OperandInfo {
  const char *name, *axes;  // a letter stands for one extent wherever it occurs; "1|h" is h or 1
  bool by_rows;             // a row is together, and rows lie as they like; the others are contiguous
};

// Up to piece_offsets of tiled_attention.h and of tiled_mix.h, up to sink of the first alone, then of the
// second alone. position_keys: z_i = position_scale q_i.e. Letters: b batch, h head, i query, j key, d and c dims of
// keys and values, n distance, s piece, p position; of the mix w hidden, x channel, k tap, e and m as u has them there.
struct TiledOperands {
  enum Operand : std::size_t {
    query,
    key,
    value,
    distance_table,
    piece_distance,
    piece_row,
    piece_begins,
    piece_slopes,
    piece_offsets,
    relative_query,
    relative_keys,
    column_term,
    gate_query,
    gate_key,
    position_logits,
    position_keys,
    position_slopes,
    sink,
    mix_input,
    mix_table,
    mix_output,
    operand_count
  };
  static constexpr OperandInfo info[operand_count] = {
      {"query", "b h i d", true},
      {"key", "b h j d", true},
      {"value", "b h j c", true},
      {"distance_table", "h n", false},
      {"piece_distance", "n", false},
      {"piece_row", "b h i", false},
      {"piece_begins", "s", false},
      {"piece_slopes", "h s", false},
      {"piece_offsets", "h s", false},
      {"relative_query", "b h i d", true},
      {"relative_keys", "1|h n d", true},
      {"column_term", "b h j", false},
      {"gate_query", "b h i d", true},
      {"gate_key", "b h j d", true},
      {"position_logits", "b h i p", true},
      {"position_keys", "p d", false},
      {"position_slopes", "h", false},
      {"sink", "h", false},
      {"mix_input", "w x k", false},
      {"mix_table", "e w m", false},
      {"mix_output", "h w k", false},
  };
};

}  // namespace whence

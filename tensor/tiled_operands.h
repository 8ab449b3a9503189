// The operands of tiled attention, one row each. Names in errors, checks of shapes, addresses and the layout of
// gradients follow from this table. Plain data only: vector code includes it (tensor/cpu/tiles/).
#pragma once

#include <cstddef>
#include <cstdint>

namespace whence {

struct OperandInfo {
  const char *name, *axes;  // each letter is one extent wherever it occurs; "1|h" is h or 1
  bool by_rows;             // only its rows must be contiguous; the others are contiguous as a whole
  std::uint8_t ops;         // the ops that read it, and whether it adds to the logits
};

// The order matters: code uses its ranges query to value, piece_distance to piece_offsets, position_logits to
// position_slopes. position_keys: z_i = position_scale q_i.e. Letters: b batch, h query head, g key and value head, i
// query, j key, d and c dims of keys and values, f dims of gates of pairs, n distance, s piece, p position; of the mix
// w hidden, x channel, k tap, e and m as in u. g divides h, and query head n reads key head n / (h / g).
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
    column_rest,
    column_slope,
    fade_query,
    fade_key,
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
  enum Ops : std::uint8_t { attention = 1, mix = 2, both = 3, logit = 4 };
  static constexpr OperandInfo info[operand_count] = {
      {"query", "b h i d", true, both},
      {"key", "b g j d", true, both},
      {"value", "b g j c", true, both},
      {"distance_table", "h n", false, both | logit},
      {"piece_distance", "n", false, both | logit},
      {"piece_row", "b h i", false, both | logit},
      {"piece_begins", "s", false, both | logit},
      {"piece_slopes", "h s", false, both | logit},
      {"piece_offsets", "h s", false, both | logit},
      {"relative_query", "b h i d", true, attention | logit},
      {"relative_keys", "1|h n d", true, attention | logit},
      {"column_term", "b h j", false, attention | logit},
      {"column_rest", "b h j", false, attention | logit},
      {"column_slope", "b h i", false, attention | logit},
      {"fade_query", "b h i f", true, attention | logit},
      {"fade_key", "b h j f", true, attention | logit},
      {"gate_query", "b h i d", true, attention | logit},
      {"gate_key", "b g j d", true, attention | logit},
      {"position_logits", "b h i p", true, attention | logit},
      {"position_keys", "p d", false, attention | logit},
      {"position_slopes", "h", false, attention | logit},
      {"sink", "h", false, attention},
      {"mix_input", "w x k", false, mix | logit},
      {"mix_table", "e w m", false, mix | logit},
      {"mix_output", "h w k", false, mix | logit},
  };
};

}  // namespace whence

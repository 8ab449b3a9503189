#include "nn/attention/tiles.h"

#include "autograd/ops.h"
#include "nn/attention/executor.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// bool [b j], contiguous; undefined where every key is there
Tensor present_by_batch(const AttendContext& context) {
  if (!context.present.defined()) return {};
  const index_t batch = context.query.size(0), keys = context.key.size(2);
  return raw::contiguous(raw::expand(raw::select(raw::select(context.present, 1, 0), 1, 0), {batch, keys}));
}

}  // namespace

TileTerms::TileTerms(const AttendContext& context) {
  operands[TiledAttention::query] = context.query;
  operands[TiledAttention::key] = context.key;
  operands[TiledAttention::value] = context.value;
  facts.scale = context.scale, facts.causal = context.causal, facts.first_row = context.first_row;
  facts.window = context.window;
  facts.present = present_by_batch(context);
  facts.total_rows = context.first_row + context.query.size(2);
}

bool TileTerms::has_more_than_pieces() const {
  for (std::size_t k = TiledAttention::piece_offsets + 1; k < TiledAttention::mix_input; ++k)
    if (operands[k].defined()) return true;
  return false;
}

bool TileTerms::read_steps(const Distances& distances) {
  // Schemes of one sum may stand at different (drawn, stretched) positions; their tables cannot be added.
  if (distances_) return distances.reads_as(*distances_);
  distances_ = distances, facts.lowest = distances.steps.lowest;
  if (!distances.diagonal) facts.query_step = distances.steps.query, facts.key_step = distances.steps.key;
  return true;
}

bool TileTerms::add_by_distance(const Distances& distances, const Tensor& table) {
  if (!read_steps(distances)) return false;
  Tensor& all = operands[TiledAttention::distance_table];
  all = all.defined() ? all + table : table;
  return true;
}

bool TileTerms::as_wide_as_queries(const Tensor& query) const {
  return query.size(-1) == operands[TiledAttention::query].size(-1);
}

bool TileTerms::add_by_row_and_distance(
    const Distances& distances, const Tensor& query, const Tensor& keys, double scale) {
  if (has(TiledAttention::relative_query) || !as_wide_as_queries(query) || !read_steps(distances)) return false;
  operands[TiledAttention::relative_query] = query, operands[TiledAttention::relative_keys] = keys;
  facts.relative_scale = scale;
  return true;
}

bool TileTerms::add_pieces(const Distances& distances, const Tensor& distance, const Tensor& row, const Tensor& begins,
    const Tensor& slopes, const Tensor& offsets) {
  if (has(TiledAttention::piece_begins) || mix || !read_steps(distances)) return false;
  operands[TiledAttention::piece_distance] = distance, operands[TiledAttention::piece_row] = row;
  operands[TiledAttention::piece_begins] = begins;
  operands[TiledAttention::piece_slopes] = slopes, operands[TiledAttention::piece_offsets] = offsets;
  return true;
}

bool TileTerms::add_column(const Tensor& column) {
  Tensor& all = operands[TiledAttention::column_term];
  all = all.defined() ? all + column : column;
  return true;
}

bool TileTerms::add_gates(const Tensor& query, const Tensor& key, double scale) {
  for (const auto other :
      {TiledAttention::position_logits, TiledAttention::position_keys, TiledAttention::position_slopes})
    if (has(other)) return false;
  if (query.defined() && !as_wide_as_queries(query)) return false;
  operands[TiledAttention::gate_query] = query, operands[TiledAttention::gate_key] = key;
  facts.gate_scale = scale;
  return true;
}

bool TileTerms::add_bins(const Distances& distances, const Tensor& bins, const Tensor& values) {
  if (facts.bins > 0 || !read_steps(distances)) return false;
  facts.bin_of = bins, facts.bins = values.size(0), bin_values = values;
  return true;
}

void TileTerms::scale_queries(const Tensor& factor) {
  operands[TiledAttention::query] = operands[TiledAttention::query] * factor;
  scaled_ = true;
}

bool TileTerms::adds_to_scores() const {
  for (std::size_t k = TiledAttention::value + 1; k < TiledAttention::sink; ++k)
    if (operands[k].defined()) return true;
  return mix.has_value();
}

std::optional<TiledResult> TileTerms::run(const std::optional<PatternDropout>& dropout) {
  if (scaled_ && adds_to_scores()) return std::nullopt;
  if (dropout) facts.dropout = dropout->probability, facts.stream = dropout->stream;
  if (!mix)
    return tiled_refusal(facts, operands).empty() ? std::optional(tiled_attention(facts, operands)) : std::nullopt;
  // A mix reads distances in a row. Where it reads neighbours, those outside of the window are others for each row.
  const bool cut = facts.window > 0 && mix->left + mix->right > 0;
  if (cut || facts.query_step.defined() || facts.bins > 0 || facts.stick || has_more_than_pieces()) return std::nullopt;
  static_cast<TiledFacts&>(*mix) = facts;
  return TiledResult{tiled_mix(*mix, operands), {}};
}

}  // namespace whence

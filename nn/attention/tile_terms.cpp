#include "nn/attention/tile_terms.h"

#include <limits>

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {

// Returns bool [b j], contiguous; undefined if every key is present.
static Tensor present_by_batch(const AttendContext& context) {
  if (!context.present.defined()) return {};
  const index_t batch = context.query.size(0), keys = context.key.size(2);
  return context.on_device(
      raw::contiguous(raw::expand(raw::select(raw::select(context.present, 1, 0), 1, 0), {batch, keys})));
}

TileTerms::TileTerms(const AttendContext& context) {
  operands[TiledCall::query] = context.query, operands[TiledCall::key] = context.key;
  operands[TiledCall::value] = context.value;
  at.scale = context.scale, at.causal = context.causal, at.window = context.window;
  at.first_row = context.first_row, at.total_rows = context.first_row + context.query.size(2);
  at.present = present_by_batch(context);
  if (context.given_mask.defined()) refuse("a mask of the caller's given; only causality, window and padding required");
}

const Distances* TileTerms::read(const std::optional<Distances>& wanted) {
  if (!wanted) {
    refuse("positions that are not whole, or 2^24 apart, given; whole distances required");
  } else if (!distances) {
    distances = wanted, at.lowest = wanted->steps.lowest;
    if (!wanted->diagonal) at.query_step = wanted->steps.query, at.key_step = wanted->steps.key;
  } else if (!wanted->reads_as(*distances)) {
    refuse("terms at different positions given; one position of each token required");
  } else {
    distances->values = wanted->values;  // of the same pairs, which this scheme may draw or stretch
  }
  return refused.empty() ? &*distances : nullptr;
}

void TileTerms::add(TiledCall::Operand which, const Tensor& x, double scale) {
  if (which == TiledCall::column_term) return add_column(x);
  Tensor& own = operands[which];
  const bool first = !own.defined();
  if (!first && which != TiledCall::distance_table)
    return refuse(to_text(TiledCall::info[which].name, " given by two schemes; one required"));
  const auto wide = [&](const Tensor& of) {  // some schemes give terms of 16-bit models in f32
    return own.dtype() == x.dtype() ? of : cast(of, compute_dtype(of.dtype()));
  };
  own = first ? x : wide(own) + wide(x);
  if (which == TiledCall::relative_query) at.relative_scale = scale;
  if (which == TiledCall::gate_query) at.gate_scale = scale;
  if (which == TiledCall::position_keys) at.position_scale = scale;
}

// Splits a column of long sums in f64 into its f32 part, which keeps its history, and the rounding error. 16-bit
// scores gain nothing from the error term.
void TileTerms::add_column(const Tensor& x) {
  const DType given = operands[TiledCall::query].dtype(), dtype = compute_dtype(given);
  const auto wide = [](const Tensor& of) { return cast(of, of.dtype() == DType::dual ? DType::dual : DType::f64); };
  columns = ++column_count > 1 ? wide(columns) + wide(x) : x;
  Tensor &held = operands[TiledCall::column_term], &rest = operands[TiledCall::column_rest];
  held = columns.dtype() == DType::f64 ? cast(columns, dtype) : columns;
  if (columns.dtype() != DType::f64 || given != DType::f32) return;
  const double most = std::numeric_limits<float>::max();  // a value that is not finite leaves no error term
  const Tensor rounded = raw::cast(held.detach(), DType::f64);
  rest = cast(clamp(columns, -most, most) - clamp(rounded, -most, most), dtype);  // gets a part of the gradient too
}

void TileTerms::add_bins(const Tensor& bins, const Tensor& values) {
  if (at.bins > 0) refuse("bins given by two schemes; one required");
  at.bin_of = bins, at.bins = values.size(0), bin_values = values;
}

void TileTerms::scale_queries(const Tensor& factor) {
  operands[TiledCall::query] = operands[TiledCall::query] * factor;
  scaled = true;
}

void TileTerms::refuse(std::string reason) {
  if (refused.empty()) refused = std::move(reason);
}

Tensor ReadsByDistance::bias(const AttendContext& context) const {
  const Distances distances = distances_of(context);
  return probe("bias", distances.read(table(distances.values, context).value()));
}

void ReadsByDistance::add_to_tiles(TileTerms& terms, const AttendContext& context) const {
  const Distances* const distances = terms.read(whole_distances(context));
  if (!distances) return;
  if (const std::optional<Tensor> numbers = table(distances->values, context))
    terms.add(TiledOperands::distance_table, *numbers);
  else
    terms.refuse("a bias that depends on more than the distance given; one number for each distance required");
}

}  // namespace whence

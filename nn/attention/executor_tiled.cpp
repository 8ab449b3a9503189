// The tiled executor. Schemes compute tensors of O(i + j) numbers by recorded ops. Everything that belongs to pairs is
// one op, which keeps no [i j] tensor (autograd/tiled/tiled_ops.cpp).
#include "autograd/ops.h"
#include "autograd/tiled/tiled_ops.h"
#include "nn/attention/plan.h"
#include "tensor/tiles/gpu_programs.h"

namespace whence {

std::string refusal_on_gpu(const Stages& stages) {
  for (const auto& stage : stages.tiled)
    if (const std::string terms = stage.scheme->only_on_cpu(); !terms.empty())
      return to_text(terms,
          " given, which has no program on a GPU; tables and keys by distance, columns, sinks, sums of gates and head "
          "mixes required");
  return {};
}

TileTerms terms_of(const AttendContext& context, const Stages& stages) {
  TileTerms terms(context);
  for (const auto& stage : stages.tiled) {
    const StageScope scope(*stage.path);
    stage.scheme->add_to_tiles(terms, stage.at(context));
  }
  return terms;
}

std::string refusal_of(const TileTerms& terms, Device device) {
  const TiledCall::Operands& x = terms.operands;
  if (!terms.refused.empty()) return terms.refused;
  if (terms.column_count > 1 && terms.has(TiledCall::column_slope))
    return "column_slope given with columns of other schemes; its own column alone required";
  for (std::size_t k = 0; terms.scaled && k < x.size(); ++k)
    if (x[k].defined() && TiledCall::info[k].ops & TiledCall::logit)
      return to_text(TiledCall::info[k].name, " given with a factor for each query; the scores alone required");
  std::string refused = tiled_refusal(terms.at, x);
  return refused.empty() && device.is_gpu() ? gpu_refusal(terms.at, x) : refused;  // a GPU has fewer programs
}

Tensor run_tiles(TileTerms terms, const std::optional<PatternDropout>& dropout) {
  if (dropout) terms.at.dropout = dropout->probability, terms.at.stream = dropout->stream;
  if (terms.at.mixes) return tiled_mix(terms.at, terms.operands);
  const auto [output, bin_sums] = tiled_attention(terms.at, terms.operands);
  return terms.bin_values.defined() ? output + matmul(bin_sums, terms.bin_values) : output;
}

}  // namespace whence

// The tiled executor: what schemes make of O(i + j) numbers is composed and recorded as ever, what is made of pairs is
// one op, which keeps no [i j] tensor (autograd/ops/tiled_attention.cpp). A call that the programs cannot do runs in
// strips, or on all pairs where a scheme needs other rows.
#include "autograd/inspect/probe.h"
#include "autograd/ops.h"
#include "nn/attention/executor.h"
#include "nn/attention/tiles.h"

namespace whence {
namespace {

template <class Interface> bool all_in_tiles(const std::vector<StageOf<Interface>>& stages) {
  for (const auto& stage : stages)
    if (!dynamic_cast<const RunsInTiles*>(stage.scheme)) return false;
  return true;
}

std::optional<TileTerms> terms_of(const AttendContext& context, const Stages& stages) {
  if (context.given_mask.defined()) return std::nullopt;
  TileTerms terms(context);
  for (const auto& stage : stages.tiled) {
    const StageScope scope(*stage.path);
    if (!stage.scheme->add_to_tiles(terms, stage.at(context))) return std::nullopt;
  }
  return terms;
}

class TiledExecutor final : public Executor {
 public:
  const char* name() const override { return "tiled"; }
  std::string refusal(const Stages& stages) const override {
    if (stages.scores.empty() && all_in_tiles(stages.biases) && all_in_tiles(stages.transforms) &&
        all_in_tiles(stages.maps) && all_in_tiles(stages.patterns) && all_in_tiles(stages.mixes))
      return {};
    return "has programs for distances, sums of gates and mixes of heads, and a scheme here does something else";
  }

  Tensor attend(const AttendInputs& inputs, const Stages& stages) const override {
    const Executor& otherwise = instead_of_tiles(stages);
    if (!tiles_take(inputs.query.device(), inputs.query.dtype())) return otherwise.attend(inputs, stages);
    const AttendContext context = rotated_context(inputs, stages);
    std::optional<TileTerms> terms = terms_of(context, stages);
    const std::optional<TiledResult> result = terms ? terms->run(inputs.dropout) : std::nullopt;
    if (!result) return otherwise.attend(inputs, stages);
    return output_of(
        terms->bin_values.defined() ? result->output + matmul(result->bin_sums, terms->bin_values) : result->output,
        context, stages);
  }
};

}  // namespace

bool tiles_take(Device device, DType dtype) {
  return (dtype == DType::f32 || dtype == DType::f64 || dtype == DType::dual) && !device.is_gpu();
}

const Executor& tiled_executor() {
  static const TiledExecutor executor;
  return executor;
}

}  // namespace whence

// The tiled executor. Schemes compute tensors of O(i + j) numbers by recorded ops. Everything that belongs to pairs is
// one op, which keeps no [i j] tensor (autograd/tiled/tiled_attention.cpp). A call without a suitable program runs in
// strips, or on all pairs if a scheme needs other rows.
#include <limits>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "autograd/tiled/tiled_ops.h"
#include "nn/attention/budget.h"
#include "nn/attention/executors.h"
#include "nn/attention/tile_terms.h"
#include "tensor/raw.h"
#include "tensor/tiles/gpu_programs.h"

namespace whence {
namespace {

// Returns bool [b j], contiguous; undefined if every key is present.
Tensor present_by_batch(const AttendContext& context) {
  if (!context.present.defined()) return {};
  const index_t batch = context.query.size(0), keys = context.key.size(2);
  return context.on_device(
      raw::contiguous(raw::expand(raw::select(raw::select(context.present, 1, 0), 1, 0), {batch, keys})));
}

// Collects the terms of schemes as operands of the tiled ops.
class ProgramTerms final : public TileTerms {
 public:
  explicit ProgramTerms(const AttendContext& context) {
    operands[TiledAttention::query] = context.query;
    operands[TiledAttention::key] = context.key;
    operands[TiledAttention::value] = context.value;
    facts_.scale = context.scale, facts_.causal = context.causal, facts_.first_row = context.first_row;
    facts_.row = context.row;
    facts_.window = context.window;
    facts_.present = present_by_batch(context);
    facts_.total_rows = context.first_row + context.query.size(2);
    if (context.given_mask.defined())
      refuse("a mask of the caller's given; only causality, window and padding required");
  }

  const Distances* read(const std::optional<Distances>& distances) override {
    if (!distances) {
      refuse("positions that are not whole, or 2^24 apart, given; whole distances required");
    } else if (!distances_) {
      distances_ = distances, facts_.lowest = distances->steps.lowest;
      if (!distances->diagonal) facts_.query_step = distances->steps.query, facts_.key_step = distances->steps.key;
    } else if (!distances->reads_as(*distances_)) {  // drawn or stretched distances: their tables cannot be added
      refuse("terms at different positions given; one position of each token required");
    }
    return refused_.empty() ? &*distances_ : nullptr;
  }
  const std::optional<Distances>& distances_read() const override { return distances_; }

  void add(TiledOperands::Operand which, const Tensor& x, double scale) override {
    if (which == TiledAttention::column_term) return add_column(x);
    Tensor& own = operands[which];
    const bool first = !own.defined();
    if (!first && which != TiledAttention::distance_table)
      return refuse(to_text(TiledAttention::info[which].name, " given by two schemes; one required"));
    const auto wide = [&](const Tensor& of) {  // some schemes give terms of 16-bit models in f32
      return own.dtype() == x.dtype() ? of : cast(of, compute_dtype(of.dtype()));
    };
    own = first ? x : wide(own) + wide(x);
    if (which == TiledAttention::relative_query) facts_.relative_scale = scale;
    if (which == TiledAttention::gate_query) facts_.gate_scale = scale;
    if (which == TiledAttention::position_keys) facts_.position_scale = scale;
  }

  void add_bins(const Tensor& bins, const Tensor& values) override {
    if (facts_.bins > 0) refuse("bins given by two schemes; one required");
    facts_.bin_of = bins, facts_.bins = values.size(0), bin_values_ = values;
  }

  void mix_heads(const HeadMix& told) override {
    TiledMix& mix = mix_.emplace();
    mix.adds_pieces = told.adds_pieces;
    mix.left = told.left, mix.right = told.right, mix.table_lowest = facts_.lowest - told.right;
    mix.behind = told.behind, mix.remask = told.remask;
  }
  void break_stick(bool rest_to_self) override { facts_.stick = true, facts_.rest_to_self = rest_to_self; }
  void scale_queries(const Tensor& factor) override {
    operands[TiledAttention::query] = operands[TiledAttention::query] * factor;
    scaled_ = true;
  }

  std::unique_ptr<TileTerms> of_base(const AttendContext& context) const override {
    auto base = std::make_unique<ProgramTerms>(context);
    base->mix_.emplace();  // checked as the operands of a mix
    return base;
  }

  void refuse(std::string reason) override {
    if (refused_.empty()) refused_ = std::move(reason);
  }
  std::string refusal() const override {
    if (!refused_.empty()) return refused_;
    if (columns_ > 1 && has(TiledAttention::column_slope))
      return "column_slope given with columns of other schemes; its own column alone required";
    for (std::size_t k = 0; scaled_ && k < operands.size(); ++k)
      if (operands[k].defined() && TiledAttention::info[k].ops & TiledOperands::logit)
        return to_text(TiledAttention::info[k].name, " given with a factor for each query; the scores alone required");
    return tiled_refusal(mix_ ? TiledOperands::mix : TiledOperands::attention, facts_, operands);
  }

  // The same for a call: a GPU has fewer programs.
  std::string refusal_on(const AttendCall& call) const {
    const std::string refused = refusal();
    if (!refused.empty() || !call.device.is_gpu()) return refused;
    return mix_ ? gpu_refusal(mix(), operands) : gpu_refusal(facts_, operands);
  }

  // Returns the output before attention's last stage, [b h i d]. REQUIRES: no refusal
  Tensor run(const std::optional<PatternDropout>& dropout) {
    if (dropout) facts_.dropout = dropout->probability, facts_.stream = dropout->stream;
    if (mix_) return tiled_mix(mix(), operands);
    const auto [output, bin_sums] = tiled_attention(facts_, operands);
    return bin_values_.defined() ? output + matmul(bin_sums, bin_values_) : output;
  }

 private:
  // Splits a column of long sums in f64 into its f32 part, which keeps its history, and the rounding error. 16-bit
  // scores gain nothing from the error term.
  void add_column(const Tensor& x) {
    const DType given = operands[TiledAttention::query].dtype(), dtype = compute_dtype(given);
    const auto wide = [](const Tensor& of) { return cast(of, of.dtype() == DType::dual ? DType::dual : DType::f64); };
    column_ = ++columns_ > 1 ? wide(column_) + wide(x) : x;
    Tensor &held = operands[TiledAttention::column_term], &rest = operands[TiledAttention::column_rest];
    held = column_.dtype() == DType::f64 ? cast(column_, dtype) : column_;
    if (column_.dtype() != DType::f64 || given != DType::f32) return;
    const double most = std::numeric_limits<float>::max();  // a value that is not finite leaves no error term
    const Tensor told = raw::cast(held.detach(), DType::f64);
    rest = cast(clamp(column_, -most, most) - clamp(told, -most, most), dtype);  // gets a part of the gradient too
  }

  TiledMix mix() const {
    TiledMix of = *mix_;
    static_cast<TiledFacts&>(of) = facts_;
    return of;
  }

  TiledAttention facts_;
  std::optional<TiledMix> mix_;  // if set, pieces are a channel of it
  Tensor column_;                // the sum of all columns
  int columns_ = 0;
  Tensor bin_values_;  // [bins d]: multiplied by the sums by distance and added to the output
  std::optional<Distances> distances_;
  std::string refused_;
  bool scaled_ = false;
};

template <class Interface> bool all_in_tiles(const std::vector<StageOf<Interface>>& stages) {
  for (const auto& stage : stages)
    if (!dynamic_cast<const RunsInTiles*>(stage.scheme)) return false;
  return true;
}

ProgramTerms terms_of(const AttendContext& context, const Stages& stages) {
  ProgramTerms terms(context);
  for (const auto& stage : stages.tiled) {
    const StageScope scope(*stage.path);
    stage.scheme->add_to_tiles(terms, stage.at(context));
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
  Fit fit(const AttendCall& call) const override {
    const bool short_numbers = call.dtype == DType::f16 || call.dtype == DType::bf16,
               long_numbers = call.dtype == DType::f64 || call.dtype == DType::dual;
    return (call.device.is_gpu() ? long_numbers : short_numbers) ? Fit::cannot : Fit::suits;
  }
  std::string reason_of_fit(const AttendCall& call) const override {
    if (fit(call) != Fit::cannot) return {};
    return to_text("no tile programs for ", call.dtype, call.device.is_gpu() ? " on a GPU" : " on the CPU");
  }

  std::string refusal_of(const AttendInputs& inputs, const Stages& stages, const AttendCall& call) const override {
    const NoGrad values_only;
    if (const std::string refusal = refusal_there(stages, call); !refusal.empty()) return refusal;
    ProgramTerms terms = terms_of(rotated_context(inputs, stages), stages);
    return terms.refusal_on(call);
  }

  Tensor attend(const AttendInputs& inputs, const Stages& stages) const override {
    const AttendCall call = call_of(inputs);
    const Executor& otherwise = executor_below(*this, stages, call);
    // On a GPU, gpu_refusal also decides about dtypes: an emulator may take f64.
    const std::string refused = call.device.is_gpu() ? refusal_there(stages, call) : reason_of_fit(call);
    const auto hand_on = [&](const std::string& reason) {
      if (inputs.sequence.row.defined()) throw Error(reason);  // no other supports rows known only to the device
      return otherwise.attend(inputs, stages);
    };
    if (!refused.empty()) return hand_on(refused);
    const AttendContext context = rotated_context(inputs, stages);
    ProgramTerms terms = terms_of(context, stages);
    if (const std::string refusal = terms.refusal_on(call); !refusal.empty()) return hand_on(refusal);
    return output_of(terms.run(inputs.dropout), context, stages);
  }

 private:
  // Returns the reason known before any terms are made: terms without a program on a GPU.
  static std::string refusal_there(const Stages& stages, const AttendCall& call) {
    if (!call.device.is_gpu()) return {};
    for (const auto& stage : stages.tiled)
      if (const std::string terms = stage.scheme->only_on_cpu(); !terms.empty())
        return to_text(terms,
            " given, which has no program on a GPU; tables and keys by distance, columns, sinks, sums of gates and "
            "head mixes required");
    return {};
  }
};

const RegisterExecutor registered(2, tiled_executor());

}  // namespace

const Executor& tiled_executor() {
  static const TiledExecutor executor;
  return executor;
}

}  // namespace whence

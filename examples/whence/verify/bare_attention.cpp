#include "examples/whence/verify/bare_attention.h"

#include <algorithm>

#include "autograd/backward.h"
#include "autograd/inspect/probe.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "tensor/error.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

Tensor drawn(const Shape& shape, std::uint64_t seed, const char* purpose, DType dtype) {
  return raw::cast(Tensor::normal(shape, 0, 1, Stream(seed, purpose), DType::f64), dtype);
}

double middle(const Init& init) {
  return init.kind == Init::Kind::uniform ? (init.first + init.second) / 2 : init.first;
}

}  // namespace

// Names the schemes of a sum as attention's list does.
class BareAttention::Holder final : public Module {
 public:
  void hold(const std::string& name, Module& module) { child(name, module); }
};

Sequence BareSetting::sequence(index_t length) const {
  Sequence sequence = present.defined() ? Sequence::padded(present, causal) : Sequence::run(length, causal);
  if (positions.defined()) sequence.positions.query = sequence.positions.key = positions;
  sequence.given_mask = mask;
  return sequence;
}

BareAttention::BareAttention(const std::string& text, const SchemeSizes& sizes) : sizes_(sizes) {
  std::vector<SchemeSpec> specs = parse_schemes(text);
  text_ = canonical_text(specs);
  // As in a model: what serves all layers comes before what a layer has for itself.
  std::stable_sort(
      specs.begin(), specs.end(), [](const SchemeSpec& a, const SchemeSpec& b) { return a.shared() && !b.shared(); });
  std::vector<const PositionalScheme*> all;
  for (const SchemeSpec& spec : specs) all.push_back(schemes_.emplace_back(spec.make(sizes)).get());
  root_ = schemes_[0].get();
  if (specs.size() > 1) {
    holder_ = std::make_unique<Holder>();
    for (std::size_t k = 0; k < specs.size(); ++k) holder_->hold(specs[k].info().name, *schemes_[k]);
    root_ = holder_.get();
  }
  stages_ = Stages::of(all);
  root_->to(DType::f64);
}

BareAttention::~BareAttention() = default;

Claims BareAttention::claims() const {
  Claims all = stages_.schemes[0]->claims();
  for (const PositionalScheme* scheme : stages_.schemes) {
    const Claims one = scheme->claims();
    all.causal_only |= one.causal_only;
    all.shift_invariant &= one.shift_invariant;
    all.longest = std::min(all.longest, one.longest);
    all.row_local &= one.row_local;
    all.prefix_consistent &= one.prefix_consistent;
    all.sees_no_future &= one.sees_no_future;
    all.mask_per_head &= one.mask_per_head;
    all.uses_positions |= one.uses_positions;
    all.drawn_each_step |= one.drawn_each_step;
    all.exact_gradient &= one.exact_gradient;
  }
  return all;
}

// A scheme without any stage is NoPE: attention as it is.
bool BareAttention::attends() const {
  return stages_.embeds.empty() || !stages_.rotates.empty() || !stages_.biases.empty() || !stages_.transforms.empty() ||
         !stages_.maps.empty() || !stages_.patterns.empty() || !stages_.mixes.empty();
}

bool BareAttention::reads_x() const {
  if (embeds()) return true;
  const RecordingScope record(true);  // whoever asks may not be
  const BareAttention trial(text_, sizes_);
  trial.root().initialise(1);
  const index_t length = std::min<index_t>(sizes_.length, 3);
  const auto normal = [&](const Shape& shape, const char* name) { return drawn(shape, 1, name, DType::f64); };
  const Shape by_head{1, sizes_.heads, length, sizes_.head_dim()};
  const Tensor x = requires_grad(normal({1, length, sizes_.dim}, "x"));
  const BareOperands operands{normal(by_head, "q"), normal(by_head, "k"), normal(by_head, "v"), x};
  const Tensor output = trial.run(operands, {}, reference_executor()).output;
  return tracked(output) && grad(sum(output), {}, {x}, {.allow_unused = true})[0].defined();
}

std::vector<std::string> BareAttention::probe_names() const {
  const NoGrad values_only;
  const BareAttention trial(text_, sizes_);
  trial.root().initialise(1);
  const Capture capture("*");
  (void)trial.run(random_operands(trial, 1, std::min<index_t>(sizes_.length, 3), 1), {}, reference_executor());
  return capture.names();
}

std::vector<std::string> BareAttention::draw_names() const {
  std::vector<std::string> names;
  if (!claims().drawn_each_step) return names;
  for (const std::string& name : probe_names())
    if (("." + name).ends_with(".drawn")) names.push_back(name);
  return names;
}

void draw_parameters(const Module& module, std::uint64_t seed) {
  for (const Module::Parameter& parameter : module.parameters()) {
    const Tensor around =
        Tensor::normal(parameter.tensor.shape(), middle(parameter.init), 0.5, Stream(seed, parameter.path), DType::f64);
    raw::copy_into(
        raw::to_device(raw::cast(around, parameter.tensor.dtype()), parameter.tensor.device()), parameter.tensor);
    parameter.put_inside_bounds();
  }
}

BareAttention::Result BareAttention::run(
    const BareOperands& operands, const BareSetting& setting, const Executor& executor) const {
  const Tensor& one = attends() ? operands.q : operands.x;
  const Sequence sequence = setting.sequence(one.size(attends() ? 2 : 1)).on(one.device());
  Result result;
  Tensor x = operands.x;
  for (const auto& stage : stages_.embeds) {
    const Scope scope(*stage.path);
    x = result.embedded = stage.scheme->embed(x, stage.moved(sequence.positions));
  }
  if (!attends()) {
    result.output = result.embedded;
    return result;
  }
  const AttendInputs inputs{.x = x,
      .query = operands.q,
      .key = operands.k,
      .value = operands.v,
      .sequence = sequence,
      .scale = setting.scale};
  if (&executor != &reference_executor()) {  // another one shows nothing but the output
    result.output = executor.attend(inputs, stages_);
    return result;
  }
  Capture capture;  // edits hand out the graph's own tensors
  const auto keep_in = [](Tensor& slot) { return [&slot](const Tensor& value) { return slot = value; }; };
  capture.edit("logits", keep_in(result.logits));
  capture.edit("pattern", keep_in(result.pattern));
  result.output = executor.attend(inputs, stages_);
  if (const Tensor seen = sequence.mask(); seen.defined()) result.logits = masked(result.logits, seen);
  return result;
}

BareOperands random_operands(
    const BareAttention& scheme, index_t batch, index_t length, std::uint64_t seed, DType dtype) {
  const SchemeSizes& sizes = scheme.sizes();
  const Shape by_head{batch, sizes.heads, length, sizes.head_dim()};
  BareOperands operands;
  if (scheme.attends()) {
    operands.q = drawn(by_head, seed, "q", dtype);
    operands.k = drawn(by_head, seed, "k", dtype);
    operands.v = drawn(by_head, seed, "v", dtype);
  }
  if (scheme.reads_x()) operands.x = drawn({batch, length, sizes.dim}, seed, "x", dtype);
  return operands;
}

}  // namespace whence

#include "examples/whence/verify/bare_attention.h"

#include <algorithm>

#include "autograd/backward.h"
#include "autograd/inspect/capture.h"
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

// Names the schemes as attention does.
struct SumOfSchemes final : Module {
  using Module::child;
};

// make(shape, name) returns an operand.
template <class Make>
AttendInputs all_inputs(const BareAttention& scheme, index_t batch, index_t length, const Make& make) {
  const SchemeSizes& sizes = scheme.sizes();
  const Shape by_head{batch, sizes.heads, length, sizes.head_dim()},
      by_key_head{batch, sizes.key_heads(), length, sizes.head_dim()};
  AttendInputs inputs;
  inputs.sequence = Sequence::run(length);
  if (scheme.reads_x()) inputs.x = make({batch, length, sizes.dim}, "x");
  if (!scheme.attends()) return inputs;
  inputs.query = make(by_head, "q"), inputs.key = make(by_key_head, "k"), inputs.value = make(by_key_head, "v");
  return inputs;
}

// Operands of a few tokens on the planned device. A trial there shows names, and takes no memory.
AttendInputs planned_inputs(const BareAttention& scheme) {
  return all_inputs(scheme, 1, std::min<index_t>(scheme.sizes().length, 3),
      [](const Shape& shape, const char*) { return Tensor::empty(shape, DType::f64, Device::planned(Device::cpu())); });
}

}  // namespace

BareAttention::BareAttention(const std::string& text, const SchemeSizes& sizes) : sizes_(sizes) {
  sizes.require_whole("attention");
  std::vector<SchemeSpec> specs = parse_schemes(text);
  text_ = canonical_text(specs);
  // The order of a model: schemes shared by all layers come before those per layer.
  std::stable_sort(
      specs.begin(), specs.end(), [](const SchemeSpec& a, const SchemeSpec& b) { return a.shared() && !b.shared(); });
  std::vector<const PositionalScheme*> all;
  for (const SchemeSpec& spec : specs) all.push_back(schemes_.emplace_back(spec.make(sizes)).get());
  root_ = schemes_[0].get();
  if (specs.size() > 1) {
    auto sum = std::make_unique<SumOfSchemes>();
    std::vector<std::string> names;
    for (std::size_t k = 0; k < specs.size(); ++k) {
      if (!specs[k].takes_part(sizes)) continue;
      names.push_back(specs[k].part().info().name);
      require_last_once(names, sizes.layer);
      sum->child(names.back(), *schemes_[k]);
    }
    root_ = sum.get();
    sum_ = std::move(sum);
  }
  stages_ = Stages::of(all);
  root_->to(DType::f64);
}

Claims BareAttention::claims() const {
  Claims all = stages_.schemes[0]->claims();
  for (const PositionalScheme* scheme : stages_.schemes) {
    const Claims one = scheme->claims();
    for (const auto& [name, claim, of_any] : named_claims)
      all.*claim = of_any ? all.*claim || one.*claim : all.*claim && one.*claim;
    all.longest = std::min(all.longest, one.longest);
    all.changes_rows = all.changes_rows.joined(one.changes_rows);
  }
  return all;
}

// A scheme without any stage is NoPE: attention as it is.
bool BareAttention::attends() const {
  return stages_.embeds.empty() || !stages_.rotates.empty() || !stages_.scores.empty() || !stages_.biases.empty() ||
         !stages_.transforms.empty() || !stages_.maps.empty() || !stages_.patterns.empty() || !stages_.mixes.empty() ||
         !stages_.outputs.empty() || stages_.window > 0;
}

void BareAttention::require_bidirectional(const std::string& option) const {
  if (claims().causal_only)
    throw InputError(option, " given with ", text_, "; a causal mask is required by its claims; leave it out");
}

std::vector<std::string> BareAttention::probe_names() const {
  const NoGrad values_only;
  const PlannedModules planned;
  const BareAttention trial(text_, sizes_);
  const Capture capture("*");
  (void)trial.run(planned_inputs(trial), Executor::reference);
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

BareAttention::Result BareAttention::run(AttendInputs inputs, const AttendPlan& plan) const {
  inputs.sequence = inputs.sequence.on((attends() ? inputs.query : inputs.x).device());
  inputs.sequence.window = Stages::narrower(inputs.sequence.window, stages_.window);
  Result result;
  for (const auto& stage : stages_.embeds) {
    const Scope scope(*stage.path);
    inputs.x = result.embedded = stage.scheme->embed(inputs.x, stage.moved(inputs.sequence.positions));
  }
  if (!attends()) {
    result.output = result.embedded;
    return result;
  }
  if (plan.executor != Executor::reference) {  // other executors show the output alone
    result.output = attend(inputs, stages_, plan);
    return result;
  }
  Capture capture;  // edits give access to the graph's own tensors
  const auto keep_in = [](Tensor& slot) { return [&slot](const Tensor& value) { return slot = value; }; };
  capture.edit("logits", keep_in(result.logits));
  capture.edit("pattern", keep_in(result.pattern));
  result.output = attend(inputs, stages_, plan);
  result.logits = inputs.sequence.masked(result.logits);
  return result;
}

AttendInputs random_inputs(
    const BareAttention& scheme, index_t batch, index_t length, std::uint64_t seed, DType dtype) {
  return all_inputs(scheme, batch, length,
      [&](const Shape& shape, const char* purpose) { return drawn(shape, seed, purpose, dtype); });
}

Tensor random_cotangent(const AttendInputs& inputs, std::uint64_t seed) {
  const Tensor& like = inputs.query.defined() ? inputs.query : inputs.x;
  return raw::to_device(drawn(like.shape(), seed, "cotangent", like.dtype()), like.device());
}

Tensor present_but(index_t tokens, index_t left, index_t right) {
  std::vector<double> present(static_cast<std::size_t>(2 * tokens), 1.0);
  std::fill_n(present.begin() + tokens, left, 0.0);
  std::fill_n(present.rbegin(), right, 0.0);
  return Tensor::of(present, {2, tokens}, DType::boolean);
}

std::array<std::pair<const char*, Tensor*>, 4> named_operands(AttendInputs& inputs) {
  return {{{"q", &inputs.query}, {"k", &inputs.key}, {"v", &inputs.value}, {"x", &inputs.x}}};
}

std::vector<Named> leaves_of(const BareAttention& scheme, AttendInputs inputs) {
  std::vector<Named> leaves;
  for (const auto& [name, operand] : named_operands(inputs))
    if (operand->defined()) leaves.push_back({name, requires_grad(*operand)});
  for (const Module::Parameter& parameter : scheme.root().parameters())
    if (!parameter.frozen) leaves.push_back({parameter.path, parameter.tensor});
  return leaves;
}

std::vector<Named> gradients_of(const Tensor& y, const Tensor& cotangent, const std::vector<Named>& leaves) {
  std::vector<Tensor> handles;
  for (const Named& leaf : leaves) handles.push_back(leaf.tensor);
  const std::vector<Tensor> found = grad(y, cotangent, handles, {.allow_unused = true});
  std::vector<Named> gradients;
  for (std::size_t k = 0; k < leaves.size(); ++k) {
    const Tensor& leaf = handles[k];
    gradients.push_back({"gradient." + leaves[k].name,
        found[k].defined() ? found[k] : Tensor::zeros(leaf.shape(), leaf.dtype(), leaf.device())});
  }
  return gradients;
}

std::vector<Named> output_and_gradients(
    const BareAttention& scheme, const AttendInputs& inputs, const AttendPlan& plan, const Tensor& cotangent) {
  const std::vector<Named> leaves = leaves_of(scheme, inputs);
  const Tensor output = scheme.run(inputs, plan).output;
  std::vector<Named> results = gradients_of(output, cotangent, leaves);
  results.insert(results.begin(), {"output", output.detach()});
  return results;
}

}  // namespace whence

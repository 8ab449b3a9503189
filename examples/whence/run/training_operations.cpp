#include "examples/whence/run/training_operations.h"

#include <algorithm>
#include <cmath>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "nn/layers/module.h"

namespace whence {
namespace {

template <class Work> PlannedOperations counted(const Work& work) {
  const PlannedOperations before = planned_operations();
  work();
  const PlannedOperations after = planned_operations();
  return {after.products - before.products, after.others - before.others};
}

PlannedOperations combined(const PlannedOperations& a, double times, const PlannedOperations& b) {
  return {a.products + times * b.products, a.others + times * b.others};
}

PlannedOperations of_model(TransformerOptions options, index_t length) {
  options.executor = "reference";
  options.length = std::max(options.length, length);
  const PlannedModules planned;
  const Transformer model(options);
  std::vector<Tensor> parameters;
  for (const Module::Parameter& parameter : model.parameters()) parameters.push_back(parameter.tensor);
  const Tensor tokens = Tensor::zeros({1, length}, DType::i64);
  return counted([&] {
    const Tensor logits = model(tokens, {.training = true});
    (void)grad(cross_entropy_sum(logits, tokens), {}, parameters, {.allow_unused = true});
  });
}

// Of one layer.
PlannedOperations of_bare_attention(const TransformerOptions& options, index_t length) {
  const Device device = Device::planned(Device::cpu());
  const auto operand = [&] {
    return requires_grad(Tensor::empty({1, options.heads, length, options.dim / options.heads}, DType::f32, device));
  };
  AttendInputs inputs{{}, operand(), operand(), operand(), Sequence::run(length, options.causal).on(device)};
  if (options.pattern_dropout > 0) inputs.dropout = PatternDropout{options.pattern_dropout, Stream(0, "planned")};
  return counted([&] {
    const Tensor mixed = reference_executor().attend(inputs, Stages());
    const Tensor seed = Tensor::empty(mixed.shape(), mixed.dtype(), device);
    (void)grad(mixed, seed, {inputs.query, inputs.key, inputs.value});
  });
}

}  // namespace

TrainingOperations training_operations(const TransformerOptions& model, index_t length) {
  TransformerOptions bare = model;
  bare.scheme = "none";
  const PlannedOperations whole = of_model(model, length), without = of_model(bare, length),
                          attention = of_bare_attention(model, length);
  const double layers = static_cast<double>(model.layers), share = 1 / static_cast<double>(length);
  const auto per_token = [&](const PlannedOperations& a) { return combined({}, share, a); };
  return {per_token(combined(without, -layers, attention)), per_token(combined({}, layers, attention)),
      per_token(combined(whole, -1, without))};
}

TransformerOptions with_dim(TransformerOptions model, index_t dim) {
  model.hidden = model.hidden * dim / model.dim;  // 0 stays 4 dim
  model.dim = dim;
  return model;
}

index_t dim_of_cost(const TransformerOptions& model, index_t length, double operations) {
  const index_t unit = 2 * model.heads;
  const auto cost = [&](index_t units) { return training_operations(with_dim(model, units * unit), length).sum(); };
  index_t below = 1, above = 2;
  while (cost(above) < operations) below = above, above *= 2;
  while (above - below > 1) (cost((below + above) / 2) < operations ? below : above) = (below + above) / 2;
  return unit * (std::abs(cost(below) - operations) < std::abs(cost(above) - operations) ? below : above);
}

}  // namespace whence

#include "examples/whence/machine/model_plan.h"

#include <algorithm>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/report/table.h"
#include "nn/layers/module.h"
#include "tensor/error.h"

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

// Counts one layer.
PlannedOperations of_bare_attention(const TransformerOptions& options, index_t length) {
  const Device device = Device::planned(Device::cpu());
  const auto operand = [&](index_t heads) {
    return requires_grad(Tensor::empty({1, heads, length, options.dim / options.heads}, DType::f32, device));
  };
  const index_t key_heads = options.key_heads();
  AttendInputs inputs{{}, operand(options.heads), operand(key_heads), operand(key_heads),
      Sequence::run(length, options.causal).on(device)};
  if (options.pattern_dropout > 0) inputs.dropout = PatternDropout{options.pattern_dropout, Stream(0, "planned")};
  return counted([&] {
    const Tensor mixed = attend(inputs, Stages(), Executor::reference);
    const Tensor seed = Tensor::empty(mixed.shape(), mixed.dtype(), device);
    (void)grad(mixed, seed, {inputs.query, inputs.key, inputs.value});
  });
}

std::string in_giga(std::size_t bytes) { return fixed(static_cast<double>(bytes) / 1e9, 2); }
std::string in_mega(double operations) { return fixed(operations / 1e6, 1); }

PlannedTraining training_of(const PlannedModel& model, DType precision) {
  PlannedTraining training{.model = model.options,
      .sequences = model.batch,
      .length = model.length,
      .device = Device::cuda(0),
      .precision = precision};
  training.model.length = std::max(model.options.length, model.length);
  return training;
}

std::string canonical(const PlannedModel& model) { return canonical_text(parse_schemes(model.options.scheme)); }

Table operations_table(const std::vector<PlannedModel>& models) {
  Table table({"model", "scheme", "parameters", "length", "products", "attention", "scheme's", "in all", "scheme's %",
      "one by one"});
  for (const PlannedModel& model : models) {
    const TrainingOperations found = training_operations(model.options, model.length);
    table.row({model.name, canonical(model), to_text(planned_parameters(model.options)), to_text(model.length),
        in_mega(found.products.sum()), in_mega(found.attention.sum()), in_mega(found.scheme.sum()),
        in_mega(found.sum()), fixed(100 * found.scheme.sum() / found.sum(), 1),
        in_mega(found.products.others + found.attention.others + found.scheme.others)});
  }
  return table;
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

std::string plan_text(const std::vector<PlannedModel>& models) {
  Table bytes({"model", "scheme", "length", "numbers", "weights", "gradients", "optimiser", "kept: attention",
      "kept: rest", "peak"});
  for (const PlannedModel& model : models) {
    for (const DType precision : {DType::f32, DType::bf16}) {
      const TrainingMemory memory = planned_memory(training_of(model, precision));
      bytes.row(
          {model.name, canonical(model), to_text(model.length), precision == DType::f32 ? "f32" : "bf16, masters f32",
              in_giga(memory.weights), in_giga(memory.gradients), in_giga(memory.optimiser), in_giga(memory.attention),
              in_giga(memory.layers + memory.around), in_giga(memory.peak)});
    }
  }
  return to_text(
      "Millions of operations per token, forward and backward: two per multiply-add of products and "
      "convolutions, and\none per number of all other steps (also given alone, as \"one by one\"). All pairs "
      "count, masked ones too.\n\n",
      operations_table(models).text(),
      "\nA training step in GB (10^9 bytes), sequences at a time: ", models.at(0).batch,
      ". Kept: for backward. Not all is there at once, so the peak can be less than the sum.\n\n", bytes.text());
}

}  // namespace whence

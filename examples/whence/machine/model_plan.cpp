#include "examples/whence/machine/model_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

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

// Of one layer.
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
    const Tensor mixed = reference_executor().attend(inputs, Stages());
    const Tensor seed = Tensor::empty(mixed.shape(), mixed.dtype(), device);
    (void)grad(mixed, seed, {inputs.query, inputs.key, inputs.value});
  });
}

std::string in_giga(double bytes) { return fixed(bytes / 1e9, 2); }
std::string in_giga(std::size_t bytes) { return in_giga(static_cast<double>(bytes)); }
std::string in_mega(double operations) { return fixed(operations / 1e6, 1); }

// "blocks.3" of "blocks.3.mlp.in.weight", "embedding" of "embedding.weight".
std::string part_of(const std::string& path) {
  const std::size_t dot = path.find('.');
  return path.substr(0, path.starts_with("blocks.") ? path.find('.', dot + 1) : dot);
}

std::size_t largest_part(const TransformerOptions& options, DType precision) {
  const PlannedModules planned;
  const Transformer model(options);
  std::map<std::string, std::size_t> bytes;
  for (const Module::Parameter& parameter : model.parameters())
    bytes[part_of(parameter.path)] += static_cast<std::size_t>(parameter.tensor.numel()) * size_of(precision);
  return std::ranges::max_element(bytes, {}, [](const auto& part) { return part.second; })->second;
}

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

PlannedBytes planned_bytes(const PlannedModel& model, DType precision) {
  PlannedModel bare = model;
  bare.length = bare.batch = 1;
  return {planned_memory(training_of(model, precision)), planned_memory(training_of(bare, precision)).peak,
      largest_part(model.options, precision)};
}

Cards cards_for(const PlannedBytes& bytes, double card_bytes) {
  if (static_cast<double>(bytes.memory.peak) <= card_bytes) return {1, to_text("peak ", in_giga(bytes.memory.peak))};
  const double shared = static_cast<double>(bytes.shared()),
               own = static_cast<double>(bytes.gathered + bytes.kept() + bytes.work());
  if (own >= card_bytes) return {0, to_text(in_giga(own), " besides its share")};
  const auto count = std::max<index_t>(2, static_cast<index_t>(std::ceil(shared / (card_bytes - own))));
  return {count, to_text(in_giga(shared), " / ", count, " + ", in_giga(bytes.gathered), " + ",
                     in_giga(bytes.kept() + bytes.work()), " = ", in_giga(shared / static_cast<double>(count) + own))};
}

std::string plan_text(const std::vector<PlannedModel>& models) {
  Table bytes({"model", "scheme", "length", "numbers", "weights", "gradients", "optimiser", "kept: attention",
      "kept: rest", "update", "work", "peak", "80 GB", "in GB on each", "141 GB", "in GB on each"});
  for (const PlannedModel& model : models) {
    for (const DType precision : {DType::f32, DType::bf16}) {
      const PlannedBytes found = planned_bytes(model, precision);
      const TrainingMemory& memory = found.memory;
      const Cards small = cards_for(found, 80e9), large = cards_for(found, 141e9);
      const auto count = [](const Cards& cards) { return cards.count ? to_text(cards.count) : "-"; };
      bytes.row(
          {model.name, canonical(model), to_text(model.length), precision == DType::f32 ? "f32" : "bf16, masters f32",
              in_giga(memory.weights), in_giga(memory.gradients), in_giga(memory.optimiser), in_giga(memory.attention),
              in_giga(memory.layers + memory.around), in_giga(found.shared() - found.state()), in_giga(found.work()),
              in_giga(memory.peak), count(small), small.arithmetic, count(large), large.arithmetic});
    }
  }
  return to_text(
      "Millions of operations per token, forward and backward: two per multiply-add of products and "
      "convolutions, and\none per number of all other steps (also given alone, as \"one by one\"). All pairs "
      "count, masked ones too.\n\n",
      operations_table(models).text(),
      "\nA training step in GB (10^9 bytes), sequences on a card at a time: ", models.at(0).batch,
      ". Kept: for backward. Update: copies that\nAdam's step makes. Not all is there at once, so the peak can be less "
      "than the sum. One card holds the peak; on more, each holds its\nshare of weights, gradients, optimiser and "
      "update + the weights of the largest part, gathered + what is kept and work.\n\n",
      bytes.text());
}

std::string equal_cost_text(const std::vector<PlannedModel>& models, const std::string& scheme) {
  Table table({"model", "length", "scheme", "dim", "operations, M", "parameters", "of the first"});
  std::string last;  // the model and length of the row above
  for (const PlannedModel& model : models) {
    TransformerOptions wanted = model.options;
    wanted.scheme = scheme;
    const double cost = training_operations(wanted, model.length).sum();
    const auto row = [&](const TransformerOptions& options) {
      const double own = training_operations(options, model.length).sum();
      table.row({model.name, to_text(model.length), canonical_text(parse_schemes(options.scheme)), to_text(options.dim),
          in_mega(own), to_text(planned_parameters(options)), fixed(own / cost, 3)});
    };
    if (std::exchange(last, to_text(model.name, model.length)) != to_text(model.name, model.length)) row(wanted);
    row(with_dim(model.options, dim_of_cost(model.options, model.length, cost)));
  }
  return table.text();
}

}  // namespace whence

#include "examples/whence/machine/model_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/report/table.h"
#include "nn/layers/module.h"
#include "tensor/error.h"

namespace whence {
namespace {

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

index_t planned_parameters(const TransformerOptions& model) {
  const PlannedModules planned;
  return Transformer(model).parameter_count();
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

#include "examples/whence/machine/training_memory.h"

#include <algorithm>
#include <bit>

#include "autograd/inspect/graph_text.h"
#include "examples/whence/run/training.h"
#include "nn/layers/module.h"
#include "tensor/device/allocator.h"
#include "tensor/device/backend.h"
#include "tensor/error.h"

namespace whence {
namespace {

std::size_t block_of(const Tensor& x) {
  return x.defined() ? Allocator::block_size(static_cast<std::size_t>(x.numel()) * size_of(x.dtype())) : 0;
}

std::vector<Tensor> tensors_of(const Module& module) {
  std::vector<Tensor> all;
  for (const Module::Parameter& parameter : module.parameters()) all.push_back(parameter.tensor);
  return all;
}

// Ops of attention itself run in its scope and in those of its schemes; its products are modules of their own.
bool is_core(const std::string& module) {
  const std::string inside = ".attention";
  const std::size_t found = module.rfind(inside);
  if (found == std::string::npos) return false;
  const std::string rest = module.substr(found + inside.size());
  return rest.empty() || rest.starts_with(".position");
}

}  // namespace

TrainingMemory planned_memory(const PlannedTraining& training) {
  const Device device = Device::planned(training.device);
  Allocator& allocator = memory_of(device);
  const std::size_t before = allocator.statistics().live;
  allocator.reset_peak();
  TrainingMemory found;
  const PlannedModules planned(training.device);
  Transformer model(training.model);
  MixedPrecision precision(model, training.precision, {.weight_decay = 0.1});
  for (const Tensor& weight : tensors_of(model)) found.weights += block_of(weight);
  for (const Adam::Moments& moments : precision.optimizer().moments())
    found.optimiser += block_of(moments.first) + block_of(moments.second) + block_of(moments.master);
  for (const Module::Parameter& parameter : precision.optimizer().parameters())
    found.gradients += block_of(parameter.tensor);
  const LossOf loss_of = token_loss(model, 0);
  const auto looked_at = [&](const TrainingBatch& batch, std::int64_t part) {
    const std::size_t live = allocator.statistics().live;
    const Tensor loss = loss_of(batch, part);
    const std::size_t kept = allocator.statistics().live - live;
    found.attention = found.layers = 0;
    for (const auto& [module, bytes] : kept_by_module(loss, tensors_of(model)))
      if (is_core(module))
        found.attention += bytes;
      else if (module.find("blocks.") != std::string::npos)
        found.layers += bytes;
    found.around = kept - std::min(kept, found.attention + found.layers);
    return loss;
  };
  const Tensor tokens = Tensor::zeros({training.sequences, training.length}, DType::i64);
  const MakeBatch make = [&](std::int64_t) { return TrainingBatch{{tokens, tokens}, tokens.numel(), tokens.numel()}; };
  // As many parts as show what more of them would take: halves, and those of an odd number in a row.
  const int halvings = std::countr_zero(static_cast<std::uint64_t>(training.accumulate));
  TrainingStep step(precision, make, looked_at,
      {.accumulate = (halvings > 0 ? 2 : 1) * (training.accumulate >> halvings > 1 ? 3 : 1)});
  for (std::int64_t n = 1; n <= 2; ++n) (void)step.take(n, 1e-3);
  found.peak = allocator.statistics().peak - before;
  // One sum waited for its other half; as many wait as the number of parts can be halved.
  std::size_t sums = 0;
  for (const Module::Parameter& parameter : precision.optimizer().parameters())
    sums += Allocator::block_size(
        static_cast<std::size_t>(parameter.tensor.numel()) * size_of(compute_dtype(parameter.tensor.dtype())));
  found.peak += sums * static_cast<std::size_t>(std::max(halvings - 1, 0) + (training.shared ? 1 : 0));
  return found;
}

}  // namespace whence

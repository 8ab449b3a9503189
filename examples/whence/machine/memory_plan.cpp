#include "examples/whence/machine/memory_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iostream>

#include "autograd/inspect/graph_text.h"
#include "autograd/recording.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/report/table.h"
#include "nn/layers/module.h"
#include "nn/training/training.h"
#include "tensor/backend.h"
#include "tensor/device/allocator.h"
#include "tensor/error.h"

namespace whence {
namespace {

std::size_t block_of(const Tensor& x, DType dtype) {
  return Allocator::block_size(static_cast<std::size_t>(x.numel()) * size_of(dtype));
}
std::size_t block_of(const Tensor& x) { return x.defined() ? block_of(x, x.dtype()) : 0; }

std::vector<Tensor> tensors_of(const Module& module) {
  std::vector<Tensor> all;
  for (const Module::Parameter& parameter : module.parameters()) all.push_back(parameter.tensor);
  return all;
}

std::size_t bytes_of(const Module& module) {
  std::size_t bytes = 0;
  for (const Tensor& tensor : tensors_of(module)) bytes += block_of(tensor);
  return bytes;
}

// Attention's own ops run in its scope and in those of its schemes; its projections are separate modules.
bool is_core(const std::string& module) {
  const std::string inside = ".attention";
  const std::size_t found = module.rfind(inside);
  if (found == std::string::npos) return false;
  const std::string rest = module.substr(found + inside.size());
  return rest.empty() || rest.starts_with(".position");
}

constexpr double bytes_of_layer = 4096;  // of its modules, at least, in addition to the numbers

[[noreturn]] void refuse(
    std::size_t asked, std::size_t free, const std::string& what, const std::string& sure, const std::string& way) {
  throw OutOfMemory(to_text("memory: ", what, " asked for, which takes ", sure, bytes_text(asked), "; at most ",
                        bytes_text(free), " required, which are free; ", way),
      {.asked = asked, .free = free});
}

// Returns the bytes of one layer's scores. Above the limit no plan is made, because it would make their masks.
std::size_t least_of(const PlannedTraining& training) {
  if (training.model.executor != "reference") return 0;
  return static_cast<std::size_t>(training.sequences * training.model.heads * training.length * training.length) *
         size_of(training.precision);
}

std::size_t bytes_of_caches(const PlannedPass& pass) {  // Counts keys and values of each layer.
  return static_cast<std::size_t>(
             2 * pass.model.layers * pass.cached * pass.model.dim / pass.model.heads * pass.model.key_heads()) *
         sizeof(float);
}

// Counts tokens, logits, and scores of one layer where they are stored whole. Planning would itself make the tokens and
// a mask.
std::size_t least_of(const PlannedPass& pass) {
  const auto tokens = static_cast<std::size_t>(pass.sequences * pass.length);
  const std::size_t scores =
      pass.model.executor == "reference" ? static_cast<std::size_t>(pass.model.heads * pass.length) : 0;
  return tokens * (sizeof(std::int64_t) +
                      sizeof(float) * (static_cast<std::size_t>(pass.model.dim + pass.model.vocabulary) + scores));
}

// Returns "memory: 3 GiB at the peak of WHAT; 5 GiB are free".
std::string peak_text(std::size_t peak, const std::string& what, std::size_t free) {
  return to_text("memory: ", bytes_text(peak), " at the peak of ", what,
      free == 0 ? "" : to_text("; ", bytes_text(free), " are free"));
}

// Counts the gradients of parts that are summed.
std::size_t bytes_of_sums(const Optimizer& optimizer) {
  std::size_t sums = 0;
  for (const Module::Parameter& parameter : optimizer.parameters())
    sums += block_of(parameter.tensor, compute_dtype(parameter.tensor.dtype()));
  return sums;
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
  MixedPrecision precision(training.optimizer, model, training.precision);
  found.executor = model.attention(0).explain(
      training.device, training.precision, training.sequences, training.length, training.model.causal);
  found.weights = bytes_of(model);
  for (const Optimizer::Moments& moments : precision.optimizer().moments())
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
  // Plan enough parts to show the memory of further ones: halves, and an odd number in a row.
  const int halvings = std::countr_zero(static_cast<std::uint64_t>(training.accumulate));
  TrainingStep step(precision, make, looked_at,
      {.accumulate = (halvings > 0 ? 2 : 1) * (training.accumulate >> halvings > 1 ? 3 : 1)});
  for (std::int64_t n = 1; n <= 2; ++n) (void)step.take(n, 1e-3);
  found.peak = allocator.statistics().peak - before;
  // One sum waited for its other half; as many wait as the number of parts can be halved.
  found.peak += bytes_of_sums(precision.optimizer()) *
                static_cast<std::size_t>(std::max(halvings - 1, 0) + (training.shared ? 1 : 0));
  return found;
}

double fewest_parameters(const TransformerOptions& model) {
  const auto at_least_0 = [](index_t size) { return static_cast<double>(std::max<index_t>(size, 0)); };
  const double dim = at_least_0(model.dim), hidden = model.hidden ? at_least_0(model.hidden) : 4 * dim;
  const double attention = 4 * dim * dim, mlp = (model.activation == Activation::swiglu ? 3 : 2) * dim * hidden;
  const double tables = at_least_0(model.vocabulary) * dim * (model.tied ? 1 : 2);
  return tables + at_least_0(model.layers) * (attention + mlp);
}

index_t planned_parameters(const TransformerOptions& model) {
  const PlannedModules planned;
  return Transformer(model).parameter_count();
}

void require_memory(const TransformerOptions& model, Device device, int numbers) {
  const double layers = static_cast<double>(std::max<index_t>(model.layers, 0));
  const std::size_t free = free_memory(device);
  const auto require = [&](double parameters) {
    const double bytes = 4 * numbers * parameters + layers * bytes_of_layer;
    if (free == 0 || bytes <= static_cast<double>(free)) return;
    refuse(static_cast<std::size_t>(std::fmin(bytes, 1e18)), free,
        to_text("a model of ", model.layers, " layers of dim ", model.dim, ", ", with_unit(parameters), " parameters"),
        "at least ", "choose a smaller --dim, fewer --layers or a scheme with fewer parameters");
  };
  require(fewest_parameters(model));  // a plan of a larger model would itself take that memory
  require(static_cast<double>(planned_parameters(model)));
}

std::string memory_table(const TrainingMemory& memory) {
  Table table({"part", "bytes"});
  const auto row = [&](const std::string& part, std::size_t bytes) { table.row({part, bytes_text(bytes)}); };
  row("weights", memory.weights);
  row("optimiser", memory.optimiser);
  row(to_text("kept for backward: attention, executor ", memory.executor.substr(0, memory.executor.find(' '))),
      memory.attention);
  row("kept for backward: the rest of the layers", memory.layers);
  row("kept for backward: embeddings, logits, loss", memory.around);
  const std::size_t lasting = memory.weights + memory.optimiser + memory.attention + memory.layers + memory.around;
  row(to_text("gradients (", bytes_text(memory.gradients), " in all) and work, at the peak"),
      memory.peak - std::min(memory.peak, lasting));
  row("peak", memory.peak);
  return table.text();
}

std::string memory_text(const TrainingMemory& memory, std::size_t free) {
  constexpr std::size_t small = std::size_t{1} << 30;  // a smaller plan is not printed
  const std::string line = peak_text(memory.peak, "a step", free) + '\n';
  const bool is_small = memory.peak < small && (free == 0 || memory.peak < free / 8);
  return is_small ? line : line + memory_table(memory);
}

TrainingMemory require_step_memory(const PlannedTraining& training, std::size_t free) {
  const std::string what = to_text("a step of ", training.sequences, " sequences of ", training.length, " tokens");
  const std::size_t least = least_of(training);
  if (free != 0 && least > free) refuse(least, free, what, "at least ", step_remedies);
  TrainingMemory memory = planned_memory(training);
  if (free == 0 || memory.peak <= free) return memory;
  std::cout << memory_table(memory) << std::flush;
  const index_t half = training.sequences / 2;
  refuse(memory.peak, free, what, "",
      training.sequences % 2 == 0 && !training.shared
          ? to_text("--batch ", half, " --accumulate ", 2 * training.accumulate,
                ", --recompute-layers, --executor strips, or a smaller model take less")
          : step_remedies);
}

std::string require_pass_memory(const PlannedPass& pass) {
  const auto model = [&pass] {
    const PlannedModules planned(pass.device);
    return Transformer(pass.model);
  };
  const std::size_t weights = bytes_of(model()), caches = bytes_of_caches(pass);
  std::size_t free = free_memory(pass.device);
  if (pass.loaded && free != 0) free += weights;
  std::size_t peak = least_of(pass) + caches;
  if (free == 0 || peak <= free)
    peak = caches + planned_peak(
                        [&] {
                          const NoGrad no_grad;
                          try {
                            (void)model()(Tensor::zeros({pass.sequences, pass.length}, DType::i64));
                          } catch (const OutOfMemory&) {
                            throw;
                          } catch (const Error&) {  // the scheme refuses that length, and the pass reports it
                          }
                        },
                        pass.device);
  const std::string kept = caches > 0 ? to_text(", ", bytes_text(caches), " keys and values") : "";
  return require_shown_memory(
      to_text("reading ", pass.sequences, " x ", pass.length, " tokens (", bytes_text(weights), " weights", kept, ")"),
      peak, free, pass.remedy);
}

std::size_t planned_peak(const std::function<void()>& pass, Device like) {
  Allocator& allocator = memory_of(Device::planned(like));
  const std::size_t before = allocator.statistics().live;
  allocator.reset_peak();
  const PlannedModules planned(like);
  pass();
  return allocator.statistics().peak - before;
}

std::string require_shown_memory(
    const std::string& what, std::size_t peak, std::size_t free, const std::string& remedy) {
  if (free != 0 && peak > free) refuse(peak, free, what, "", remedy);
  return peak_text(peak, what, free);
}

}  // namespace whence

#include "examples/whence/machine/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <tuple>

#include "autograd/inspect/graph_text.h"
#include "autograd/recording.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/report/table.h"
#include "nn/layers/module.h"
#include "tensor/device/allocator.h"
#include "tensor/error.h"

namespace whence {
namespace {

// Reads the number after `key` in a file of such lines, or the file's only number for an empty key.
std::optional<std::size_t> number_in(const std::filesystem::path& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    std::istringstream text(line.substr(key.size()));
    if (std::size_t number = 0; text >> number) return number;
  }
  return std::nullopt;
}

std::size_t free_of_machine() {
  std::size_t free = number_in("/proc/meminfo", "MemAvailable:").value_or(0) * 1024;
  const auto limit = [&free](std::size_t most, std::size_t used) {
    const std::size_t left = most - std::min(most, used);
    free = std::max<std::size_t>(free == 0 ? left : std::min(free, left), 1);  // 0 would mean unknown
  };
  // Control groups, innermost first: "0::/a/b" of version 2, or "4:memory:/a/b". Some of their memory can be reclaimed.
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    for (const auto& [sign, root, most, used, cache] :
        {std::tuple{"0::", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "},
            {":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                "total_inactive_file "}}) {
      const std::size_t at = line.find(sign);
      if (at == std::string::npos) continue;
      const std::string within = line.substr(at + std::string(sign).size());
      for (std::filesystem::path group = root + within;; group = group.parent_path()) {
        const auto high = number_in(group / most, ""), now = number_in(group / used, "");
        if (high && now) limit(*high, *now - std::min(*now, number_in(group / "memory.stat", cache).value_or(0)));
        if (group.native().size() <= std::string(root).size()) break;
      }
    }
  }
  // The process's own limits, ulimit -v and -d: pages of its address space, and of its data.
  std::size_t size = 0, data = 0, other = 0;
  std::ifstream("/proc/self/statm") >> size >> other >> other >> other >> other >> data;
  for (const auto& [resource, pages] : {std::pair{RLIMIT_AS, size}, std::pair{RLIMIT_DATA, data}})
    if (rlimit most{}; size > 0 && getrlimit(resource, &most) == 0 && most.rlim_cur != RLIM_INFINITY)
      limit(most.rlim_cur, pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  return free;
}

std::size_t block_of(const Tensor& x, DType dtype) {
  return Allocator::block_size(static_cast<std::size_t>(x.numel()) * size_of(dtype));
}
std::size_t block_of(const Tensor& x) { return x.defined() ? block_of(x, x.dtype()) : 0; }

std::size_t bytes_of(const std::vector<Module::Parameter>& parameters) {
  std::size_t bytes = 0;
  for (const Module::Parameter& parameter : parameters) bytes += block_of(parameter.tensor);
  return bytes;
}

// Attention's own ops run in its scope and in those of its schemes; its projections are separate modules.
bool is_core(const std::string& module) {
  const std::size_t found = module.rfind(".attention");
  return found != std::string::npos && (found + 10 == module.size() || module.compare(found + 10, 9, ".position") == 0);
}

[[noreturn]] void refuse(
    std::size_t asked, std::size_t free, const std::string& what, const std::string& sure, const std::string& way) {
  throw OutOfMemory(to_text("memory: ", what, " asked for, which takes ", sure, bytes_text(asked), "; at most ",
                        bytes_text(free), " required, which are free; ", way),
      {.asked = asked, .free = free});
}

// Counts tokens, logits, and scores of one layer where they are stored whole. Planning would itself make the tokens and
// a mask, so that no plan is made if these are too many.
std::size_t least_of(const TransformerOptions& model, index_t sequences, index_t length, DType dtype) {
  const index_t scores = model.executor == "reference" ? model.heads * length : 0;
  return static_cast<std::size_t>(sequences * length) *
         (sizeof(std::int64_t) + size_of(dtype) * static_cast<std::size_t>(model.dim + model.vocabulary + scores));
}

}  // namespace

std::size_t free_memory(Device device) {
  Allocator& allocator = memory_of(device);
  const std::size_t free = device.is_cpu() ? free_of_machine() : allocator.room().free;
  const MemoryStatistics held = allocator.statistics();
  return free == 0 ? 0 : free + held.reserved - held.live;
}

TrainingMemory planned_memory(const PlannedTraining& training) {
  Allocator& allocator = memory_of(Device::planned(training.device));
  const std::size_t before = allocator.statistics().live;
  allocator.reset_peak();
  TrainingMemory found;
  const PlannedModules planned(training.device);
  Transformer model(training.model);
  MixedPrecision precision(model, training.precision, {});
  found.executor = model.attention(0).explain(
      training.device, training.precision, training.sequences, training.length, training.model.causal);
  found.weights = bytes_of(model.parameters());
  for (const Optimizer::Moments& moments : precision.optimizer().moments())
    found.optimiser += block_of(moments.first) + block_of(moments.second) + block_of(moments.master);
  found.gradients = bytes_of(precision.optimizer().parameters());
  std::vector<Tensor> parameters;
  for (const Module::Parameter& parameter : model.parameters()) parameters.push_back(parameter.tensor);
  const LossOf loss_of = token_loss(model, 0);
  const auto looked_at = [&](const TrainingBatch& batch, std::int64_t part) {
    const std::size_t live = allocator.statistics().live;
    const Tensor loss = loss_of(batch, part);
    const std::size_t kept = allocator.statistics().live - live;
    found.attention = found.layers = 0;
    for (const auto& [module, bytes] : kept_by_module(loss, parameters))
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
  // One sum of gradients waited for its other half; as many wait as the number of parts can be halved.
  std::size_t sums = 0;
  for (const Module::Parameter& parameter : precision.optimizer().parameters())
    sums += block_of(parameter.tensor, compute_dtype(parameter.tensor.dtype()));
  found.peak += sums * static_cast<std::size_t>(std::max(halvings - 1, 0) + (training.shared ? 1 : 0));
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
  const std::size_t free = free_memory(device);
  const auto require = [&](double parameters) {  // and a layer's modules
    const double bytes = 4 * numbers * parameters + 4096 * static_cast<double>(std::max<index_t>(model.layers, 0));
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

TrainingMemory require_step_memory(const PlannedTraining& training, std::size_t free) {
  const std::string what = to_text("a step of ", training.sequences, " sequences of ", training.length, " tokens");
  const std::size_t least = least_of(training.model, training.sequences, training.length, training.precision);
  if (free != 0 && least > free) refuse(least, free, what, "at least ", step_remedies);
  TrainingMemory memory = planned_memory(training);
  if (free == 0 || memory.peak <= free) return memory;
  std::cout << memory_table(memory) << std::flush;
  refuse(memory.peak, free, what, "",
      training.sequences % 2 == 0 && !training.shared
          ? to_text("--batch ", training.sequences / 2, " --accumulate ", 2 * training.accumulate,
                ", --recompute-layers, --executor strips, or a smaller model take less")
          : step_remedies);
}

std::string require_pass_memory(const PlannedPass& pass) {
  const TransformerOptions& model = pass.model;
  const auto caches =
      static_cast<std::size_t>(2 * model.layers * pass.cached * model.dim / model.heads * model.key_heads()) *
      sizeof(float);  // keys and values of each layer
  std::size_t free = free_memory(pass.device), weights = 0,
              peak = least_of(model, pass.sequences, pass.length, DType::f32);
  peak = std::max(peak, planned_peak(
                            [&] {
                              const Transformer planned(model);
                              weights = bytes_of(planned.parameters());
                              if (pass.loaded && free != 0) free += weights;
                              if (free != 0 && peak + caches > free) return;
                              const NoGrad no_grad;
                              try {
                                (void)planned(Tensor::zeros({pass.sequences, pass.length}, DType::i64));
                              } catch (const OutOfMemory&) {
                                throw;
                              } catch (const Error&) {  // the scheme refuses that length, and the pass reports it
                              }
                            },
                            pass.device)) +
         caches;
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
  return to_text("memory: ", bytes_text(peak), " at the peak of ", what,
      free == 0 ? "" : to_text("; ", bytes_text(free), " are free"));
}

}  // namespace whence

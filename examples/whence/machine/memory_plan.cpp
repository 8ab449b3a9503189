#include "examples/whence/machine/memory_plan.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

#include "autograd/recording.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/report/table.h"
#include "nn/attention/executor.h"
#include "nn/layers/module.h"
#include "tensor/device/allocator.h"
#include "tensor/device/backend.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

namespace fs = std::filesystem;

// The number behind `key` in a file of such lines, or the file's only number for an empty key.
std::optional<std::size_t> number_in(const fs::path& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    std::istringstream text(line.substr(key.size()));
    if (std::size_t number = 0; text >> number) return number;
  }
  return std::nullopt;
}

// What a control group leaves: its limit less what cannot be given back. Version 2's names, then version 1's.
std::optional<std::size_t> left_in(const fs::path& group) {
  for (const auto& [limit, used, cache] : {std::tuple{"memory.max", "memory.current", "inactive_file "},
           std::tuple{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "}}) {
    const auto most = number_in(group / limit, ""), now = number_in(group / used, "");
    if (!most || !now) continue;
    const std::size_t cached = number_in(group / "memory.stat", cache).value_or(0);
    const std::size_t held = *now - std::min(*now, cached);
    return *most - std::min(*most, held);
  }
  return std::nullopt;
}

// The groups of this process, innermost first: "0::/a/b", or "4:memory:/a/b".
std::vector<fs::path> control_groups() {
  std::vector<fs::path> groups;
  std::ifstream lines("/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const bool second = line.starts_with("0::");
    const std::size_t colon = line.rfind(':');
    if (colon == std::string::npos || (!second && line.find(":memory:") == std::string::npos)) continue;
    const fs::path root = second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (fs::path inner = fs::path(line.substr(colon + 1)).relative_path(); !inner.empty(); inner = inner.parent_path())
      groups.push_back(root / inner);
    groups.push_back(root);
  }
  return groups;
}

// What the limits of this process leave (ulimit -v, ulimit -d), of which /proc/self/statm counts pages.
std::optional<std::size_t> left_in_process() {
  std::size_t size = 0, resident = 0, shared = 0, text = 0, library = 0, data = 0;
  if (!(std::ifstream("/proc/self/statm") >> size >> resident >> shared >> text >> library >> data))
    return std::nullopt;
  std::optional<std::size_t> left;
  for (const auto& [resource, pages] : {std::pair{RLIMIT_AS, size}, std::pair{RLIMIT_DATA, data}}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    const std::size_t used = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t rest = limit.rlim_cur - std::min<std::size_t>(limit.rlim_cur, used);
    left = std::min(left.value_or(rest), rest);
  }
  return left;
}

std::size_t free_of_machine() {
  std::size_t free = number_in("/proc/meminfo", "MemAvailable:").value_or(0) * 1024;
  const auto at_most = [&free](const std::optional<std::size_t>& left) {
    if (left) free = std::max<std::size_t>(free == 0 ? *left : std::min(free, *left), 1);  // 0 would be: not known
  };
  for (const fs::path& group : control_groups()) at_most(left_in(group));
  at_most(left_in_process());
  return free;
}

// Runs smaller than this are no news.
constexpr std::size_t small_peak = std::size_t{1} << 30;

// Scores of one layer alone that exceed the limit need no plan; making one would make their masks.
std::size_t least_of(const PlannedTraining& training) {
  if (training.model.executor != "reference" || training.batch.tensors.empty()) return 0;
  const Tensor& tokens = training.batch.tensors[0];
  return static_cast<std::size_t>(tokens.size(0) * training.model.heads * tokens.size(1) * tokens.size(1)) *
         size_of(training.precision);
}

std::size_t peak_of(const PlannedTraining& training, std::size_t free) {
  const std::size_t least = least_of(training);
  return least > free ? least : planned_memory(training).peak;
}

PlannedTraining with_batch(PlannedTraining training, index_t sequences, index_t length) {
  const index_t given = training.batch.tensors[0].size(0);
  training.accumulate *= given / sequences;
  training.model.length = std::min(training.model.length, length);
  for (Tensor& tensor : training.batch.tensors)
    tensor = raw::slice(raw::slice(tensor, 0, 0, sequences), 1, 0, std::min(length, tensor.size(1)));
  return training;
}

struct Change {
  PlannedTraining training;
  std::string options;
};

std::string batch_options(const PlannedTraining& training) {
  return to_text("--batch ", training.batch.tensors[0].size(0), " --accumulate ", training.accumulate);
}

// The same with each other executor that can run the schemes.
std::vector<Change> by_executor(const Change& change) {
  std::vector<Change> all{change};
  for (const Executor* executor : executors()) {
    if (executor->name() == change.training.model.executor) continue;
    Change other = change;
    other.training.model.executor = executor->name();
    other.options += to_text(other.options.empty() ? "" : " ", "--executor ", executor->name());
    try {
      const Transformer trial({.vocabulary = 1,
          .length = 1,
          .dim = change.training.model.dim,
          .layers = 1,
          .heads = change.training.model.heads,
          .hidden = 1,
          .scheme = change.training.model.scheme,
          .executor = executor->name()});
      all.push_back(std::move(other));
    } catch (const InputError&) {  // it cannot
    }
  }
  return all;
}

// From the smallest change to the largest, the run as it is first.
template <class Try> bool each_change(const PlannedTraining& training, bool has_length, const Try& fits) {
  const index_t sequences = training.batch.tensors[0].size(0), length = training.batch.tensors[0].size(1);
  const auto any = [&](const Change& change) {
    const auto all = by_executor(change);
    return std::any_of(all.begin(), all.end(), fits);
  };
  for (index_t count = sequences; count >= 1; --count) {
    if (sequences % count) continue;
    const PlannedTraining fewer = with_batch(training, count, length);
    if (any({fewer, count == sequences ? "" : batch_options(fewer)})) return true;
  }
  const PlannedTraining one = with_batch(training, 1, length);
  for (index_t shorter = length / 2; has_length && shorter >= 8; shorter /= 2) {
    const PlannedTraining part = with_batch(training, 1, shorter);
    if (any({part, to_text("--length ", shorter, sequences == 1 ? "" : " " + batch_options(part))})) return true;
  }
  return false;
}

constexpr double bytes_of_layer = 4096;  // of its modules, at least, beside the numbers

[[noreturn]] void refuse(
    std::size_t asked, std::size_t free, const std::string& what, const std::string& sure, const std::string& way) {
  throw OutOfMemory(to_text("memory: ", what, " asked for, which takes ", sure, bytes_text(asked), "; at most ",
                        bytes_text(free), " required, which are free; ", way),
      {.asked = asked, .free = free});
}

// Weights, and all at the peak; of as many layers as one or two passes tell, because each takes what the others do.
std::pair<std::size_t, std::size_t> bytes_of(const PlannedPass& pass) {
  const auto of_layers = [&pass](index_t layers) {
    TransformerOptions options = pass.model;
    options.layers = layers;
    const Device device = Device::planned(pass.device);
    Allocator& allocator = memory_of(device);
    const std::size_t before = allocator.statistics().live;
    allocator.reset_peak();
    const PlannedModules planned(pass.device);
    const NoGrad no_grad;
    const Transformer model(options);
    const std::size_t weights = allocator.statistics().live - before;
    try {
      (void)model(Tensor::zeros({pass.sequences, pass.length}, DType::i64));
    } catch (const OutOfMemory&) { throw; } catch (const Error&) {  // no scheme for that length: the pass will say so
    }
    return std::pair{weights, allocator.statistics().peak - before};
  };
  const auto one = of_layers(1);
  if (pass.model.layers == 1) return one;
  const auto two = of_layers(2);
  const auto more = static_cast<std::size_t>(pass.model.layers - 1);
  return {
      one.first + more * (two.first - one.first), one.second + more * (two.second - std::min(two.second, one.second))};
}

std::size_t bytes_of_caches(const PlannedPass& pass) {  // keys and values of each layer
  return static_cast<std::size_t>(2 * pass.model.layers * pass.cached * pass.model.dim) * sizeof(float);
}

// Tokens, logits, and scores of one layer where they are made whole: what needs no plan, which itself would make the
// tokens and a mask.
std::size_t least_of(const PlannedPass& pass) {
  const auto tokens = static_cast<std::size_t>(pass.sequences * pass.length);
  const std::size_t scores =
      pass.model.executor == "reference" ? static_cast<std::size_t>(pass.model.heads * pass.length) : 0;
  return tokens * (sizeof(std::int64_t) +
                      sizeof(float) * (static_cast<std::size_t>(pass.model.dim + pass.model.vocabulary) + scores));
}

}  // namespace

std::size_t free_memory(Device device) {
  Allocator& allocator = memory_of(device);
  const std::size_t free = device.is_cpu() ? free_of_machine() : allocator.room().free;
  const MemoryStatistics held = allocator.statistics();
  return free == 0 ? 0 : free + held.reserved - held.live;
}

double fewest_parameters(const TransformerOptions& model) {
  const auto at_least_0 = [](index_t size) { return static_cast<double>(std::max<index_t>(size, 0)); };
  const double dim = at_least_0(model.dim), hidden = model.hidden ? at_least_0(model.hidden) : 4 * dim;
  const double attention = 4 * dim * dim, mlp = (model.activation == Activation::swiglu ? 3 : 2) * dim * hidden;
  const double tables = at_least_0(model.vocabulary) * dim * (model.tied ? 1 : 2);
  return tables + at_least_0(model.layers) * (attention + mlp);
}

void require_memory(const TransformerOptions& model, Device device, int numbers) {
  const double parameters = fewest_parameters(model), layers = static_cast<double>(std::max<index_t>(model.layers, 0));
  const double bytes = 4 * numbers * parameters + layers * bytes_of_layer;
  const std::size_t free = free_memory(device);
  if (free == 0 || bytes <= static_cast<double>(free)) return;
  refuse(static_cast<std::size_t>(std::fmin(bytes, 1e18)), free,
      to_text("a model of ", model.layers, " layers of dim ", model.dim, ", ", with_unit(parameters), " parameters"),
      "at least ", "choose a smaller --dim or fewer --layers");
}

std::string memory_table(const TrainingMemory& memory, const PlannedTraining& training) {
  Table table({"part", "bytes"});
  const auto row = [&](const std::string& part, std::size_t bytes) { table.row({part, bytes_text(bytes)}); };
  row("weights", memory.weights);
  row("optimiser", memory.optimiser);
  row(to_text("kept for backward: attention, executor ", training.model.executor), memory.attention);
  row("kept for backward: the rest of the layers", memory.layers);
  row("kept for backward: embeddings, logits, loss", memory.around);
  const std::size_t lasting = memory.weights + memory.optimiser + memory.attention + memory.layers + memory.around;
  row(to_text("gradients (", bytes_text(memory.gradients), " in all) and work, at the peak"),
      memory.peak - std::min(memory.peak, lasting));
  row("peak", memory.peak);
  return table.text();
}

std::string memory_text(const TrainingMemory& memory, const PlannedTraining& training, std::size_t free) {
  const std::string of = free == 0 ? "" : to_text("; ", bytes_text(free), " are free");
  const std::string line = to_text("memory: ", bytes_text(memory.peak), " at the peak of a step", of, '\n');
  const bool small = memory.peak < small_peak && (free == 0 || memory.peak < free / 8);
  return small ? line : line + memory_table(memory, training);
}

TrainingMemory require_step_memory(const PlannedTraining& training, const MemoryLimits& limits) {
  if (limits.free == 0 || least_of(training) <= limits.free) {
    TrainingMemory memory = planned_memory(training);
    if (limits.free == 0 || memory.peak <= limits.free) return memory;
  }
  const std::size_t peak = peak_of(training, limits.free);
  const char* sure = least_of(training) > limits.free ? "at least " : "";
  std::string way = "choose a smaller model";
  (void)each_change(training, limits.has_length, [&](const Change& change) {
    if (change.options.empty()) return false;  // the run as it is
    const std::size_t changed = peak_of(change.training, limits.free);
    if (changed > limits.free) return false;
    way = to_text(change.options, " takes ", bytes_text(changed));
    return true;
  });
  refuse(peak, limits.free,
      to_text("a step of ", training.batch.tensors[0].size(0), " sequences of ", training.batch.tensors[0].size(1),
          " tokens"),
      sure, way);
}

std::string require_pass_memory(const PlannedPass& pass, std::size_t free) {
  const std::size_t weights = bytes_of(PlannedPass{.model = pass.model, .device = pass.device}).first;
  if (pass.loaded && free != 0) free += weights;
  const auto peak_of_pass = [&](const PlannedPass& tried) {
    const std::size_t least = least_of(tried) + bytes_of_caches(tried);
    return free != 0 && least > free ? least : bytes_of(tried).second + bytes_of_caches(tried);
  };
  const std::size_t peak = peak_of_pass(pass);
  if (free != 0 && peak > free) {
    std::string way = "choose a smaller model";
    PlannedPass shorter = pass;
    while (pass.follow && shorter.value > 1) {
      shorter.value /= 2;
      pass.follow(shorter);
      const std::size_t changed = peak_of_pass(shorter);
      if (changed > free) continue;
      way = to_text(pass.option, " ", shorter.value, " takes ", bytes_text(changed));
      break;
    }
    refuse(peak, free, to_text("reading ", pass.sequences, " x ", pass.length, " tokens at a time"), "", way);
  }
  const std::string caches =
      pass.cached > 0 ? to_text(", ", bytes_text(bytes_of_caches(pass)), " keys and values") : "";
  const std::string of = free == 0 ? "" : to_text("; ", bytes_text(free), " are free");
  return to_text("memory: ", bytes_text(peak), " at the peak of reading ", pass.sequences, " x ", pass.length,
      " tokens: ", bytes_text(weights), " weights", caches, of);
}

std::size_t planned_peak(const std::function<void()>& pass) {
  Allocator& allocator = memory_of(Device::planned(Device::cpu()));
  const std::size_t before = allocator.statistics().live;
  allocator.reset_peak();
  const PlannedModules planned(Device::cpu());
  pass();
  return allocator.statistics().peak - before;
}

std::string require_shown_memory(
    const std::string& what, std::size_t peak, std::size_t free, const std::function<std::string()>& way) {
  if (free != 0 && peak > free) refuse(peak, free, what, "", way());
  return to_text("memory: ", bytes_text(peak), " at the peak of ", what,
      free == 0 ? "" : to_text("; ", bytes_text(free), " are free"));
}

std::pair<std::string, std::string> plan_memory(const PlannedTraining& training, bool has_length) {
  const std::size_t free = free_memory(training.device);
  const TrainingMemory memory = require_step_memory(training, {free, has_length});
  std::cout << memory_text(memory, training, free) << std::flush;
  return {"planned_peak_bytes", std::to_string(memory.peak)};
}

}  // namespace whence

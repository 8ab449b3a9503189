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
#include "nn/layers/module.h"
#include "tensor/device/allocator.h"
#include "tensor/device/backend.h"
#include "tensor/error.h"

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
  if (training.model.executor != "reference") return 0;
  return static_cast<std::size_t>(training.sequences * training.model.heads * training.length * training.length) *
         size_of(training.precision);
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

TrainingMemory require_step_memory(const PlannedTraining& training, std::size_t free) {
  const std::string what = to_text("a step of ", training.sequences, " sequences of ", training.length, " tokens");
  const std::size_t least = least_of(training);
  if (free != 0 && least > free) refuse(least, free, what, "at least ", step_remedies);
  TrainingMemory memory = planned_memory(training);
  if (free == 0 || memory.peak <= free) return memory;
  std::cout << memory_table(memory, training) << std::flush;
  const index_t half = training.sequences / 2;
  refuse(memory.peak, free, what, "",
      training.sequences % 2 == 0 && !training.shared
          ? to_text("--batch ", half, " --accumulate ", 2 * training.accumulate,
                ", --executor strips, or a smaller model take less")
          : step_remedies);
}

std::string require_pass_memory(const PlannedPass& pass, std::size_t free) {
  const std::size_t weights = bytes_of(PlannedPass{.model = pass.model, .device = pass.device}).first;
  if (pass.loaded && free != 0) free += weights;
  const std::size_t least = least_of(pass) + bytes_of_caches(pass),
                    peak = free != 0 && least > free ? least : bytes_of(pass).second + bytes_of_caches(pass);
  if (free != 0 && peak > free)
    refuse(peak, free, to_text("reading ", pass.sequences, " x ", pass.length, " tokens at a time"), "", pass.remedy);
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
    const std::string& what, std::size_t peak, std::size_t free, const std::string& remedy) {
  if (free != 0 && peak > free) refuse(peak, free, what, "", remedy);
  return to_text("memory: ", bytes_text(peak), " at the peak of ", what,
      free == 0 ? "" : to_text("; ", bytes_text(free), " are free"));
}

std::pair<std::string, std::string> plan_memory(const PlannedTraining& training) {
  const std::size_t free = free_memory(training.device);
  const TrainingMemory memory = require_step_memory(training, free);
  std::cout << memory_text(memory, training, free) << std::flush;
  return {"planned_peak_bytes", std::to_string(memory.peak)};
}

}  // namespace whence

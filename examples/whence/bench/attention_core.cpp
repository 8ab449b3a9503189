#include "examples/whence/bench/attention_core.h"

#include <algorithm>
#include <cmath>

#include "autograd/backward.h"
#include "examples/whence/cli/numbers.h"
#include "nn/attention/plan.h"
#include "nn/scheme.h"
#include "nn/training/precision.h"
#include "tensor/device/allocator.h"
#include "tensor/device/device_runtime.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::bench {
namespace {

constexpr double mib = 1 << 20;

// Gives q.k / sqrt(d) the mean -4: one number of every query and key is +-c, c c = 4 sqrt(d).
void make_sparse(const AttendInputs& inputs) {
  const double c = 2 * std::pow(static_cast<double>(inputs.query.size(-1)), 0.25);
  for (const auto& [tensor, value] : {std::pair(inputs.query, c), std::pair(inputs.key, -c)}) {
    const index_t dim = tensor.size(-1);
    for (index_t n = 0; n < tensor.numel(); n += dim) tensor.data<float>()[n] = static_cast<float>(value);
  }
}

bool has_gates(const std::string& scheme) {
  return scheme.find("cope") != std::string::npos || scheme.find("stick_breaking") != std::string::npos;
}

double bytes_of(const Tensor& tensor) {
  return static_cast<double>(tensor.numel()) * static_cast<double>(size_of(tensor.dtype()));
}

}  // namespace

std::vector<CoreCase> cases_of(const Options& options) {
  const std::string schemes =
      options.schemes.empty() ? "none,alibi,kerple,cope,dape(kerple),cdape(kerple)" : options.schemes;
  std::vector<CoreCase> cases;
  for (const std::int64_t length : numbers_of(options.lengths.empty() ? "512,2048" : options.lengths, "--lengths")) {
    for (const std::string& text : list_of(schemes)) {
      const std::string scheme = canonical_text(parse_schemes(text));
      const bool gated = has_gates(scheme);
      for (const Gates gates : {Gates::initial, Gates::sparse})
        if (gated ? options.gates != (gates == Gates::sparse ? "initial" : "sparse") : gates == Gates::initial)
          cases.push_back({scheme, length, options.heads, 0, options.head_dim, std::max<std::int64_t>(options.batch, 1),
              gates, storage_dtype_of(options.machine.precision)});
    }
  }
  return cases;
}

std::vector<Executor> executors_of(const std::string& names) {
  const std::vector all(all_executors.begin(), all_executors.end());
  if (names == "all") return all;
  std::vector<Executor> chosen;
  for (const std::string& word : list_of(names)) {
    const auto found = std::ranges::find(all, word, name_of);
    if (found == all.end())
      throw InputError("--executors: '", word, "' given; ", joined(all, name_of), " or all required");
    chosen.push_back(*found);
  }
  return chosen;
}

AttentionCore::AttentionCore(const CoreCase& what, Device device)
    : device_(device), scheme_(what.scheme, {what.heads * what.head_dim, what.heads, what.length, 0, what.kv_heads}) {
  if (!scheme_.attends())
    throw InputError("scheme: ", what.scheme, " given; one that takes part in attention required, which it does not");
  scheme_.root().to(DType::f32);
  scheme_.root().initialise(1);
  draw_zeros(scheme_.root(), 0.1);
  scheme_.root().to(what.dtype);
  scheme_.root().to(device);
  inputs_ = random_inputs(scheme_, what.batch, what.length, 0, DType::f32);
  inputs_.sequence = Sequence::run(what.length).on(device);
  if (what.gates == Gates::sparse) make_sparse(inputs_);
  for (const auto& [name, operand] : named_operands(inputs_))
    if (operand->defined()) *operand = raw::to_device(raw::cast(*operand, what.dtype), device);
  for (const Named& leaf : leaves_of(scheme_, inputs_)) leaves_.emplace_back(leaf.name, leaf.tensor);
  cotangent_ = random_cotangent(inputs_, 0);
  const auto length = static_cast<double>(what.length),
             seen = static_cast<double>(std::min(Stages::narrower(scheme_.stages().window, what.length), what.length));
  // Row i sees min(i + 1, seen) keys.
  const double positions = static_cast<double>(what.batch) * seen * (length - (seen - 1) / 2);  // for one head
  const double pairs = positions * static_cast<double>(what.heads), dim = static_cast<double>(what.head_dim);
  double mix = 0;  // for one position, all heads
  for (const auto& [name, tensor] : leaves_) {
    if (!("." + name).ends_with(".hidden.weight") && !("." + name).ends_with(".output.weight")) continue;
    const bool of_bias = name.ends_with("hidden.weight") && tensor.size(1) == 2 * what.heads;
    mix += 2 * static_cast<double>(tensor.numel()) / (of_bias ? 2 : 1);
  }
  forward_operations_ = 4 * dim * pairs + mix * positions;
  backward_operations_ = 10 * dim * pairs + 3 * mix * positions;
}

std::string AttentionCore::refusal(Executor executor) const {
  return executor == Executor::tiled ? refusal_by_tiles(inputs_, scheme_.stages(), call_of(inputs_))
                                     : refusal_of(executor, scheme_.stages());
}

// Waits for the device before each reading of the clock.
Repetition AttentionCore::run(const AttendPlan& plan) {
  results_.clear();
  std::vector<Tensor> leaves;
  for (const auto& [name, leaf] : leaves_) leaves.push_back(leaf);
  Allocator& allocator = memory_of(device_);
  const auto mib_above = [&](std::size_t bytes, double operands) {
    return (static_cast<double>(bytes) - operands) / mib;
  };
  synchronise(device_);
  allocator.reset_peak();
  const double held = static_cast<double>(allocator.statistics().live), start = steady_seconds();
  const Tensor output = attend(inputs_, scheme_.stages(), plan);
  synchronise(device_);
  const double middle = steady_seconds(), operands = held + bytes_of(output);
  Repetition found{.forward = (middle - start) * 1e3,
      .kept = mib_above(allocator.statistics().live, operands),
      .peak = mib_above(allocator.statistics().peak, operands)};
  const std::vector<Tensor> gradients = grad(output, cotangent_, leaves, {.allow_unused = true});
  synchronise(device_);
  found.backward = (steady_seconds() - middle) * 1e3;
  found.peak = std::max(found.peak,
      mib_above(allocator.statistics().peak, operands + bytes_of(inputs_.query) + 2 * bytes_of(inputs_.key)));
  results_.emplace_back("output", output.detach());
  for (std::size_t k = 0; k < gradients.size(); ++k)
    if (gradients[k].defined()) results_.emplace_back("gradient of " + leaves_[k].first, gradients[k]);
  return found;
}

}  // namespace whence::bench

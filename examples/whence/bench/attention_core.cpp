#include "examples/whence/bench/attention_core.h"

#include <algorithm>
#include <cmath>

#include "autograd/backward.h"
#include "examples/whence/cli/words.h"
#include "nn/attention/plan.h"
#include "nn/scheme.h"
#include "tensor/device/allocator.h"
#include "tensor/device/device_runtime.h"
#include "tensor/error.h"
#include "tensor/kernels.h"
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

void declare(Fields& line, CoreOptions& options) {
  line.text("schemes", &options.schemes, {"positional schemes, commas between them"})
      .text("executors", &options.executors, {"how attention is computed: names, or all"})
      .text("lengths", &options.lengths, {"sequence lengths", "tokens"})
      .choice("gates", &options.gates, {"initial", "sparse", "both"},
          {"gates of CoPE and sticks: around 1/2, as before training, or around 0.02, as in trained models"})
      .integer("heads", &options.heads, Range<std::int64_t>{1, 1024}, {"attention heads"})
      .integer("kv-heads", &options.kv_heads, Range<std::int64_t>{0, 1024}, {"heads of keys and values; 0: as --heads"})
      .integer("head-dim", &options.head_dim, Range<std::int64_t>{1, 4096}, {"numbers per head"})
      .integer("batch", &options.batch, Range<std::int64_t>{1, 65536}, {"sequences"});
}

std::vector<CoreCase> cases_of(const CoreOptions& options) {
  std::vector<CoreCase> cases;
  for (const std::int64_t length : numbers_of(options.lengths, "--lengths")) {
    for (const std::string& text : list_of(options.schemes)) {
      const std::string scheme = canonical_text(parse_schemes(text));
      const bool gated = has_gates(scheme);
      for (const Gates gates : {Gates::initial, Gates::sparse})
        if (gated ? options.gates != (gates == Gates::sparse ? "initial" : "sparse") : gates == Gates::initial)
          cases.push_back({scheme, length, options.heads, options.kv_heads, options.head_dim, options.batch, gates});
    }
  }
  return cases;
}

std::vector<Executor> executors_of(const CoreOptions& options) {
  const std::vector all(all_executors.begin(), all_executors.end());
  if (options.executors == "all") return all;
  std::vector<Executor> chosen;
  for (const std::string& word : list_of(options.executors)) {
    const auto found = std::ranges::find(all, word, name_of);
    if (found == all.end())
      throw InputError("--executors: '", word, "' given; ", joined(all, name_of), " or all required");
    chosen.push_back(*found);
  }
  return chosen;
}

AttentionCore::AttentionCore(const CoreCase& what, Device device)
    : what_(what),
      device_(device),
      scheme_(what.scheme, {what.heads * what.head_dim, what.heads, what.length, 0, what.kv_heads}) {
  if (!scheme_.attends())
    throw InputError("scheme: ", what.scheme, " given; one that takes part in attention required, which it does not");
  scheme_.root().to(DType::f32);
  scheme_.root().initialise(1);
  draw_zeros(scheme_.root(), 0.1);
  scheme_.root().to(what.dtype);
  scheme_.root().to(device);
  inputs_ = random_inputs(scheme_, what.batch, what.length, 0, DType::f32);
  inputs_.sequence = Sequence::run(what.length, what.causal).on(device);
  if (what.gates == Gates::sparse) make_sparse(inputs_);
  for (const auto& [name, operand] : named_operands(inputs_))
    if (operand->defined()) *operand = raw::to_device(raw::cast(*operand, what.dtype), device);
  for (const Named& leaf : leaves_of(scheme_, inputs_)) leaves_.emplace_back(leaf.name, leaf.tensor);
  cotangent_ = random_cotangent(inputs_, 0);
  count_operations();
}

void AttentionCore::count_operations() {
  const auto length = static_cast<double>(what_.length),
             seen = static_cast<double>(Stages::narrower(scheme_.stages().window, what_.length));
  const double causal =
      std::min(seen, length) * (length - (std::min(seen, length) - 1) / 2);  // min(i + 1, seen) of row i
  const double positions =
      static_cast<double>(what_.batch) * (what_.causal ? causal : 2 * causal - length);  // for one head
  const double pairs = positions * static_cast<double>(what_.heads), dim = static_cast<double>(what_.head_dim);
  double mix = 0;  // for one position, all heads
  for (const auto& [name, tensor] : leaves_) {
    if (!("." + name).ends_with(".hidden.weight") && !("." + name).ends_with(".output.weight")) continue;
    const bool of_bias = name.ends_with("hidden.weight") && tensor.size(1) == 2 * what_.heads;
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
CoreRun AttentionCore::run(const AttendPlan& plan, bool with_backward) {
  results_.clear();
  std::vector<Tensor> leaves;
  for (const auto& [name, leaf] : leaves_) leaves.push_back(leaf);
  Allocator& allocator = memory_of(device_);
  const auto live = [&] { return static_cast<double>(allocator.statistics().live); };
  const auto peak = [&] { return static_cast<double>(allocator.statistics().peak); };
  CoreRun found;
  synchronise(device_);
  allocator.reset_peak();
  const double held = live(), start = steady_seconds();
  const Tensor output = attend(inputs_, scheme_.stages(), plan);
  synchronise(device_);
  const double middle = steady_seconds(), operands = held + bytes_of(output);
  found.kept = (live() - operands) / mib, found.peak = (peak() - operands) / mib;
  std::vector<Tensor> gradients;
  found.backward = std::nan("");
  if (with_backward) {
    gradients = grad(output, cotangent_, leaves, {.allow_unused = true});
    synchronise(device_);
    found.backward = (steady_seconds() - middle) * 1e3;
    found.peak = std::max(found.peak, (peak() - operands - bytes_of(inputs_.query) - 2 * bytes_of(inputs_.key)) / mib);
  }
  found.forward = (middle - start) * 1e3;
  results_.emplace_back("output", output.detach());
  for (std::size_t k = 0; k < gradients.size(); ++k)
    if (gradients[k].defined()) results_.emplace_back("gradient of " + leaves_[k].first, gradients[k]);
  return found;
}

Row row_of(const CoreCase& what, const std::string& engine) {
  return Row()
      .add("scheme", what.scheme, "scheme", what.text())
      .add("gates", what.gates == Gates::sparse ? "sparse" : "initial")
      .add("length", what.length, "length")
      .add("executor", engine, "by")
      .add("heads", what.heads)
      .add("kv_heads", what.kv_heads ? what.kv_heads : what.heads)
      .add("head_dim", what.head_dim)
      .add("batch", what.batch)
      .add("dtype", to_string(what.dtype));
}

}  // namespace whence::bench

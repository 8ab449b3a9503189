#include "nn/attention/executor.h"

#include "autograd/inspect/probe.h"
#include "tensor/error.h"
#include "tensor/kernels.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

// Scores up to this size are cheaper to keep than to compute twice. A training step holds a dozen of them per layer. A
// GPU has more memory than it has time for the many small kernels of strips. By kind of device, not by what is free
// there: one model takes one way everywhere, and its bits with it.
constexpr index_t bytes_worth_strips = index_t(256) << 20, bytes_worth_strips_on_gpu = index_t(2) << 30;

index_t score_bytes(const AttendInputs& inputs) {
  return inputs.query.size(0) * inputs.query.size(1) * inputs.query.size(2) * inputs.key.size(2) *
         static_cast<index_t>(size_of(inputs.query.dtype()));
}

}  // namespace

bool pairs_are_watched() {
  static const std::vector<std::string> of_all_executors{"x", "q", "k", "v", "output"};
  return Capture::wants_under(detail::scope_path ? *detail::scope_path : std::string(), of_all_executors);
}

std::vector<const Executor*> executors() { return {&reference_executor(), &strips_executor(), &tiled_executor()}; }

std::vector<std::string> executor_names() {
  std::vector<std::string> names{"auto"};
  for (const Executor* executor : executors()) names.emplace_back(executor->name());
  return names;
}

const Executor* wanted_executor(const std::string& name, const Stages& stages) {
  if (name == "auto") return nullptr;
  for (const Executor* executor : executors()) {
    if (name != executor->name()) continue;
    const std::string refusal = executor->refusal(stages);
    if (!refusal.empty()) throw InputError("executor: ", name, " ", refusal);
    return executor;
  }
  refuse_name("executor", name, executor_names());
}

const Executor& executor_for(const Executor* wanted, const AttendInputs& inputs, const Stages& stages) {
  if (wanted == &reference_executor() || pairs_are_watched()) return reference_executor();
  if (wanted) return *wanted;
  if (tiles_take(inputs.query) && tiled_executor().refusal(stages).empty()) return tiled_executor();
  const bool large =
      score_bytes(inputs) > (inputs.query.device().is_gpu() ? bytes_worth_strips_on_gpu : bytes_worth_strips);
  return large && strips_executor().refusal(stages).empty() ? strips_executor() : reference_executor();
}

std::string explain_executor(const Executor* wanted, const Stages& stages) {
  if (wanted == &reference_executor()) return "reference (as asked)";
  if (wanted) return to_text(wanted->name(), " (as asked; reference while probes are captured)");
  const std::string tiled = tiled_executor().refusal(stages), strips = strips_executor().refusal(stages);
  const std::string without_tiles =
      strips.empty() ? to_text("reference, or strips for calls whose scores exceed ", bytes_worth_strips >> 20,
                           " MiB, on a GPU ", bytes_worth_strips_on_gpu >> 30, " GiB")
                     : to_text("reference; strips ", strips);
  if (!tiled.empty()) return to_text(without_tiles, " (tiled ", tiled, ")");
  return to_text("tiled (for 16-bit numbers, on a GPU and while probes are captured: ", without_tiles, ")");
}

}  // namespace whence

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

index_t bytes_worth_strips_on(Device device) {
  return device.is_gpu() ? bytes_worth_strips_on_gpu : bytes_worth_strips;
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

const Executor& instead_of_tiles(const Stages& stages) {
  return strips_executor().refusal(stages).empty() ? strips_executor() : reference_executor();
}

AttendCall call_of(const AttendInputs& inputs) {
  const Tensor& query = inputs.query;
  return {query.device(), query.dtype(), query.size(0) * query.size(1) * query.size(2) * inputs.key.size(2)};
}

const Executor& executor_for(const Executor* wanted, const Stages& stages, const AttendCall& call) {
  if (wanted == &reference_executor() || pairs_are_watched()) return reference_executor();
  const bool in_tiles = tiles_take(call.device, call.dtype) && tiled_executor().refusal(stages).empty();
  if (wanted) return wanted == &tiled_executor() && !in_tiles ? instead_of_tiles(stages) : *wanted;
  if (in_tiles) return tiled_executor();
  const bool large = call.pairs * static_cast<index_t>(size_of(call.dtype)) > bytes_worth_strips_on(call.device);
  return large ? instead_of_tiles(stages) : reference_executor();
}

std::string explain_executor(const Executor* wanted, const Stages& stages, const AttendCall& call) {
  const Executor& runs = executor_for(wanted, stages, call);
  std::vector<std::string> reasons;
  if (&runs == wanted) {
    reasons.emplace_back("as asked");
  } else if (&runs != &tiled_executor()) {
    const std::string refusal = tiled_executor().refusal(stages);
    reasons.push_back(refusal.empty() ? to_text("no tile programs for ", call.dtype,
                                            call.device.is_gpu() ? " on a GPU" : " on the CPU")
                                      : "tiled " + refusal);
    if (!wanted && &runs == &strips_executor())
      reasons.push_back("scores exceed " + bytes_text(static_cast<std::size_t>(bytes_worth_strips_on(call.device))));
  }
  if (&runs != &reference_executor()) reasons.emplace_back("reference while probes are captured");
  return to_text(runs.name(), " (", joined(reasons, {}, "; "), ")");
}

}  // namespace whence

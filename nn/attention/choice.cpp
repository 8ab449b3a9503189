#include "nn/attention/choice.h"

#include <algorithm>
#include <map>

#include "autograd/observer.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

std::map<int, const Executor*>& executors_by_rank() {
  static std::map<int, const Executor*> by_rank{{0, &reference_executor()}};
  return by_rank;
}

// Returns the executors from `first` down; null: all.
std::vector<const Executor*> downwards(const Executor* first) {
  std::vector<const Executor*> all = executors();
  std::reverse(all.begin(), all.end());
  if (first) all.erase(all.begin(), std::ranges::find(all, first));
  return all;
}

}  // namespace

RegisterExecutor::RegisterExecutor(int rank, const Executor& executor) { executors_by_rank().emplace(rank, &executor); }

std::vector<const Executor*> executors() {
  std::vector<const Executor*> all;
  for (const auto& [rank, executor] : executors_by_rank()) all.push_back(executor);
  return all;
}

bool pairs_are_watched() {
  static const std::vector<std::string> of_all_executors{"x", "q", "k", "v", "output"};
  return is_watched_under(detail::scope_path ? *detail::scope_path : std::string(), of_all_executors);
}

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

AttendCall call_of(const AttendInputs& inputs) {
  const Tensor& query = inputs.query;
  return {query.device(), query.dtype(), query.size(0) * query.size(1) * query.size(2) * inputs.key.size(2)};
}

const Executor& executor_for(const Executor* wanted, const Stages& stages, const AttendCall& call) {
  if (pairs_are_watched()) return reference_executor();
  for (const Executor* each : downwards(wanted))
    if (each->fit(call) >= (wanted ? Fit::can : Fit::suits) && each->refusal(stages).empty()) return *each;
  return reference_executor();
}

const Executor& executor_below(const Executor& executor, const Stages& stages, const AttendCall& call) {
  const Fit enough = call.device.is_gpu() ? Fit::suits : Fit::can;  // many small kernels cost a GPU too much time
  for (const Executor* each : downwards(&executor))
    if (each != &executor && each->fit(call) >= enough && each->refusal(stages).empty()) return *each;
  return reference_executor();
}

std::string explain_executor(
    const Executor* wanted, const Stages& stages, const AttendCall& call, const AttendInputs& example) {
  const Executor& chosen = executor_for(wanted, stages, call);
  const std::string apart = chosen.refusal_of(example, stages, call);
  const Executor& runs = apart.empty() ? chosen : executor_below(chosen, stages, call);
  std::vector<std::string> reasons;
  if (!apart.empty()) {
    reasons.push_back(to_text("not ", chosen.name(), ": ", apart));
  } else if (&runs == wanted) {
    reasons.emplace_back("as asked");
  } else {
    for (const Executor* each : downwards(wanted)) {  // the executors that were tried
      if (wanted && each == &runs) break;
      if (!wanted && each->fit(call) == Fit::can) continue;
      const std::string refusal = each->refusal(stages),
                        reason = refusal.empty() ? each->reason_of_fit(call) : to_text(each->name(), " ", refusal);
      if (!reason.empty()) reasons.push_back(reason);
      if (each == &runs) break;
    }
  }
  if (&runs != &reference_executor()) reasons.emplace_back("reference while probes are captured");
  if (reasons.empty()) reasons.emplace_back("every probe live");
  return to_text(runs.name(), " (", joined(reasons, {}, "; "), ")");
}

}  // namespace whence

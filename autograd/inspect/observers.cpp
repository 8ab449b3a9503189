#include "autograd/inspect/observers.h"

#include <algorithm>
#include <cmath>

namespace whence {

static std::string range_of(const Tensor& x) {
  if (!is_floating(x.dtype())) return to_text(x.dtype(), " ", x.shape());
  double low = INFINITY, high = -INFINITY;
  std::size_t bad = 0;
  for (const double value : x.to_vector())
    if (!std::isfinite(value))
      ++bad;
    else
      low = std::min(low, value), high = std::max(high, value);
  return to_text(
      x.dtype(), " ", x.shape(), " in [", low, ", ", high, "]", bad ? to_text(" with ", bad, " not finite") : "");
}

static void require_finite(const char* op, const char* pass, const Tensor& result, std::span<const Tensor> inputs) {
  if (!result.defined() || !is_floating(result.dtype())) return;
  const std::vector<double> values = result.to_vector();
  const auto bad = std::find_if(values.begin(), values.end(), [](double value) { return !std::isfinite(value); });
  if (bad == values.end()) return;
  std::string ranges;
  for (std::size_t k = 0; k < inputs.size(); ++k)
    if (inputs[k].defined()) ranges += to_text(k ? "; " : "", "input ", k, " is ", range_of(inputs[k]));
  throw NotFinite(error_at_call_site(op, to_text("its ", pass, " made ", *bad, " at element ", bad - values.begin(),
                                             " of ", result.shape(), "; finite numbers required; ", ranges)));
}

void CheckFinite::saw(const OpRun& run) {
  for (const Tensor& each : run.made) require_finite(run.op, run.backward ? "backward" : "forward", each, run.read);
}

void OpClock::saw(const OpRun& run) {
  if (run.within) return;
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - run.began;
  static const std::string root;
  const std::string& path = run.backward ? run.node->path : detail::scope_path ? *detail::scope_path : root;
  tell_({run.op, path, run.backward, taken.count()});
}

const Tape::Entry* Tape::of(std::uint64_t result) const {
  const auto after = entries_.upper_bound(result);
  if (after == entries_.begin()) return nullptr;
  const Entry& entry = std::prev(after)->second;
  return result < entry.node->id + entry.results.size() ? &entry : nullptr;
}

void Tape::saw(const OpRun& run) {
  if (run.backward || !run.node) return;
  Entry& entry = entries_[run.node->id] = {Ref<Node>(run.node), {run.read.begin(), run.read.end()}, {}};
  for (const Tensor& result : run.made) entry.results.push_back(result.detach());
}

}  // namespace whence

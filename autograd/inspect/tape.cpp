#include "autograd/inspect/tape.h"

namespace whence {

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

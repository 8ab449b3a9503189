#include "autograd/inspect/tape.h"

namespace whence {

const Tape::Entry* Tape::of(std::uint64_t result) const {
  const auto after = entries_.upper_bound(result);
  if (after == entries_.begin()) return nullptr;
  const Entry& entry = std::prev(after)->second;
  return result < entry.node->id + entry.results.size() ? &entry : nullptr;
}

void Tape::keep(Node& node, const std::vector<Tensor>& inputs, std::span<const Tensor> results) {
  Entry& entry = entries_[node.id] = {Ref<Node>(&node), inputs, {}};
  for (const Tensor& result : results) entry.results.push_back(result.detach());
}

}  // namespace whence

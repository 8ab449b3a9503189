// Tape: records the inputs and results of every op of this thread while it lives, so that a number of a pass can be
// computed again (autograd/inspect/explain.h).
#pragma once

#include <map>
#include <vector>

#include "autograd/node.h"
#include "autograd/observer.h"

namespace whence {

class Tape : public Observer {
 public:
  struct Entry {
    Ref<Node> node;
    std::vector<Tensor> inputs;   // with their history
    std::vector<Tensor> results;  // without history
  };
  // Keyed by the node's id, and so in the order of the pass.
  const std::map<std::uint64_t, Entry>& entries() const { return entries_; }

  const Entry* of(std::uint64_t result) const;  // the op that made the result; null if it ran before the Tape lived

  void saw(const OpRun& run) override;

 private:
  std::map<std::uint64_t, Entry> entries_;
};

}  // namespace whence

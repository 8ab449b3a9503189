// What every op of this thread read and made: kept while a Tape is alive, so that a number of a pass can be worked out
// again (autograd/inspect/explain.h).
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
    std::vector<Tensor> results;  // without
  };
  // By the node's id, and so in the order of the pass.
  const std::map<std::uint64_t, Entry>& entries() const { return entries_; }

  const Entry* of(std::uint64_t result) const;  // of the op that made it; null where none did while this was alive

  void saw(const OpRun& run) override;

 private:
  std::map<std::uint64_t, Entry> entries_;
};

}  // namespace whence

// What every op of this thread read and made: kept while a Tape is alive, so that a number of a pass can be worked out
// again (autograd/inspect/explain.h). Without one an op costs a thread-local load more.
#pragma once

#include <map>
#include <vector>

#include "autograd/node.h"

namespace whence {

class Tape {
 public:
  Tape();
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  struct Entry {
    Ref<Node> node;
    std::vector<Tensor> inputs;  // with their history
    Tensor output;               // without
  };
  // By the node's id, and so in the order of the pass.
  const std::map<std::uint64_t, Entry>& entries() const { return entries_; }

  void stop();  // what was kept stays

  void keep(Node& node, const std::vector<Tensor>& inputs, const Tensor& output);

 private:
  std::map<std::uint64_t, Entry> entries_;
  Tape* previous_;
  bool stopped_ = false;
};

namespace detail {
inline thread_local Tape* tape = nullptr;
}

}  // namespace whence

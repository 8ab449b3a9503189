#include "autograd/tape.h"

namespace whence {

Tape::Tape() : previous_(detail::tape) { detail::tape = this; }
Tape::~Tape() { stop(); }

void Tape::stop() {
  if (!stopped_) detail::tape = previous_;
  stopped_ = true;
}

void Tape::keep(Node& node, const std::vector<Tensor>& inputs, const Tensor& output) {
  entries_[node.id] = {Ref<Node>(&node), inputs, output.detach()};
}

}  // namespace whence

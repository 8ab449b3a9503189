#include "autograd/inspect/tape.h"

#include <utility>

namespace whence {

Tape::Tape() : previous_(detail::tape) { detail::tape = this; }
Tape::~Tape() { stop(); }

void Tape::stop() {
  if (std::exchange(stopped_, true)) return;
  Tape** link = &detail::tape;
  while (*link && *link != this) link = &(*link)->previous_;
  if (*link) *link = previous_;
}

void Tape::keep(Node& node, const std::vector<Tensor>& inputs, const Tensor& output) {
  entries_[node.id] = {Ref<Node>(&node), inputs, output.detach()};
}

}  // namespace whence

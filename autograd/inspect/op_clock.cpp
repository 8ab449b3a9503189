#include "autograd/inspect/op_clock.h"

#include "autograd/node.h"

namespace whence {

void OpClock::saw(const OpRun& run) {
  if (run.within) return;
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - run.began;
  static const std::string root;
  const std::string& path = run.backward ? run.node->path : detail::scope_path ? *detail::scope_path : root;
  tell_({run.op, path, run.backward, taken.count()});
}

}  // namespace whence

#include "autograd/inspect/op_clock.h"

#include <chrono>

#include "autograd/node.h"

namespace whence {

double OpTimer::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void OpTimer::tell() const {
  const double seconds = now() - started_;
  static const std::string root;
  const std::string& path = node_ ? node_->path : detail::scope_path ? *detail::scope_path : root;
  clock_->tell_({op_, path, node_ != nullptr, seconds});
}

}  // namespace whence

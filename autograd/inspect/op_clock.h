// OpClock: the time of a computation, op by op. While it lives, it is called with the duration of each op of this
// thread. Ops called inside an op count as their own time: those that make up a backward, and the forward that
// recompute() runs again.
//
//   OpClock clock([&](const OpTime& each) { seconds[each.op] += each.seconds; });
#pragma once

#include <functional>

#include "autograd/observer.h"

namespace whence {

struct OpTime {
  const char* op;
  const std::string& path;  // the Scope (autograd/observer.h) in which the op ran: "blocks.3.attention"
  bool backward;
  double seconds;  // on the CPU; a GPU may still be at work
};

class OpClock : public Observer {
 public:
  explicit OpClock(std::function<void(const OpTime&)> tell) : tell_(std::move(tell)) {}
  void saw(const OpRun& run) override;

 private:
  std::function<void(const OpTime&)> tell_;
};

}  // namespace whence

// Where the time of a computation goes, op by op. While an OpClock is alive, each op of this thread tells it how long
// it took. What an op calls inside counts as its own time: the ops that make up a backward, and the forward that
// recompute() runs again there.
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

// Where the time of a computation goes, op by op. While an OpClock is alive, each op of this thread tells it how long
// it took; without one an op costs a thread-local load more. What an op calls inside counts as its own time: the ops
// that make up a backward, and the forward that recompute() runs again there.
//
//   OpClock clock([&](const OpTime& each) { seconds[each.op] += each.seconds; });
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "autograd/recording.h"

namespace whence {

struct OpTime {
  const char* op;
  const std::string& path;  // the Scope (autograd/inspect/probe.h) in which the op ran: "blocks.3.attention"
  bool backward;
  double seconds;  // on the CPU; a GPU may still be at work
};

class OpClock {
 public:
  explicit OpClock(std::function<void(const OpTime&)> tell) : tell_(std::move(tell)) {}

 private:
  friend class OpTimer;
  std::function<void(const OpTime&)> tell_;
  const Exchange<OpClock*> current_{detail::op_clock, this};
};

// One op's run. `node`: the node whose backward runs; null in forward. Nobody times what runs inside.
class OpTimer {
 public:
  explicit OpTimer(const char* op, const Node* node = nullptr) : op_(op), node_(node), started_(clock_ ? now() : 0) {}

  // The op is done: tells the clock. What the clock's function throws goes to whoever called the op.
  void stop() const {
    if (clock_) tell();
  }

 private:
  static double now();
  void tell() const;

  OpClock* const clock_ = detail::op_clock;
  const Exchange<OpClock*> nobody_{detail::op_clock, nullptr};
  const char* const op_;
  const Node* const node_;
  const double started_;
};

}  // namespace whence

// Where the time of a computation goes, op by op. While an OpClock is alive, each op of this thread tells it how long
// it took; without one an op costs a thread-local load more. What an op calls inside counts as its own time: the ops
// that make up a backward, and the forward that recompute() runs again there.
//
//   OpClock clock([&](const OpTime& each) { seconds[each.op] += each.seconds; });
#pragma once

#include <functional>
#include <string>

namespace whence {

class Node;

struct OpTime {
  const char* op;
  const std::string& path;  // the Scope (autograd/inspect/probe.h) in which the op ran: "blocks.3.attention"
  bool backward;
  double seconds;  // on the CPU; a GPU may still be at work
};

class OpClock {
 public:
  explicit OpClock(std::function<void(const OpTime&)> tell);
  ~OpClock();
  OpClock(const OpClock&) = delete;
  OpClock& operator=(const OpClock&) = delete;

 private:
  friend class OpTimer;
  std::function<void(const OpTime&)> tell_;
  OpClock* previous_;
};

namespace detail {
inline thread_local OpClock* op_clock = nullptr;
}

// One op's run, from construction to destruction. `node`: the node whose backward runs; null in forward.
class OpTimer {
 public:
  explicit OpTimer(const char* op, const Node* node = nullptr) : clock_(detail::op_clock) {
    if (clock_) start(op, node);
  }
  ~OpTimer() {
    if (clock_) stop();
  }
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

 private:
  void start(const char* op, const Node* node);
  void stop() noexcept;

  OpClock* clock_;
  const char* op_ = nullptr;
  const Node* node_ = nullptr;
  double started_ = 0;
};

}  // namespace whence

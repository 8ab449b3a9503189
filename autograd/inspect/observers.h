// Observers of a program's ops (autograd/observer.h): a check for numbers that are not finite, a clock, a tape.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "autograd/graph.h"
#include "autograd/observer.h"

namespace whence {

// While it lives, the result of every op of this thread is checked, forward and backward. The first NaN or infinity
// throws a NotFinite with the op, its line, the index of the number, and the range of each input.
class CheckFinite : public Observer {
 public:
  void saw(const OpRun& run) override;
};

struct OpTime {
  const char* op;
  const std::string& path;  // the Scope (autograd/observer.h) in which the op ran: "blocks.3.attention"
  bool backward;
  double seconds;  // on the CPU; a GPU may still be at work
};

// While it lives, it is called with the duration of each op of this thread. Ops called inside an op count as their own
// time: those that make up a backward, and the forward that recompute() runs again.
//   OpClock clock([&](const OpTime& each) { seconds[each.op] += each.seconds; });
class OpClock : public Observer {
 public:
  explicit OpClock(std::function<void(const OpTime&)> tell) : tell_(std::move(tell)) {}
  void saw(const OpRun& run) override;

 private:
  std::function<void(const OpTime&)> tell_;
};

// While it lives, it records the inputs and results of every op of this thread, so that a number of a pass can be
// computed again (autograd/inspect/explain.h).
class Tape : public Observer {
 public:
  struct Entry {
    Ref<Node> node;
    std::vector<Tensor> inputs;   // with their history
    std::vector<Tensor> results;  // without history
  };
  // Keyed by the node's id, and so in the order of the pass.
  const std::map<std::uint64_t, Entry>& entries() const { return entries_; }

  const Entry* of(std::uint64_t result) const;  // the op that made the result; null if it ran before the Tape lived

  void saw(const OpRun& run) override;

 private:
  std::map<std::uint64_t, Entry> entries_;
};

}  // namespace whence

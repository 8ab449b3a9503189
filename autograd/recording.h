// Recording: which operations make nodes, and what else autograd keeps for a thread.
#pragma once

#include <type_traits>
#include <utility>

namespace whence {

class Node;

namespace detail {
inline thread_local bool recording = true;   // ops make nodes: not inside NoGrad, an op's forward, or a plain backward
inline thread_local bool releasing = false;  // the backward that runs forgets what ops saved: they may write over it
inline thread_local Node* saving_node = nullptr;    // whose forward runs: what it saves becomes this node's
inline thread_local Node* backward_node = nullptr;  // whose backward runs
}  // namespace detail

// Sets one of these for the length of a block: const Exchange values_only(detail::recording, false);
template <class T> class Exchange {
 public:
  Exchange(T& slot, std::type_identity_t<T> value) : slot_(slot), previous_(std::exchange(slot, std::move(value))) {}
  ~Exchange() { slot_ = std::move(previous_); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

 private:
  T& slot_;
  T previous_;
};

// On by default. Off inside NoGrad, inside every op's forward, and in backward unless create_graph.
inline bool recording() { return detail::recording; }

struct RecordingScope : Exchange<bool> {
  explicit RecordingScope(bool on) : Exchange(detail::recording, on) {}
};

// NoGrad no_grad;  from here to the end of the block nothing is recorded and results have no history.
struct NoGrad : RecordingScope {
  NoGrad() : RecordingScope(false) {}
};

}  // namespace whence

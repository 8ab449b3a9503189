// All that autograd keeps for a thread. An Exchange sets one of these for the length of a block.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

namespace whence {

class Node;
class Capture;
class Tape;
class OpClock;

namespace detail {

inline thread_local bool recording = true;   // ops make nodes: not inside NoGrad, an op's forward, or a plain backward
inline thread_local bool releasing = false;  // the backward that runs forgets what ops saved: they may write over it
inline thread_local Node* saving_node = nullptr;    // whose forward runs: what it saves becomes this node's
inline thread_local Node* backward_node = nullptr;  // whose backward runs

inline thread_local const std::string* scope_path = nullptr;  // of the innermost Scope
inline thread_local Capture* active_capture = nullptr;        // the innermost that has not stopped
inline thread_local bool probes_keep_gradients = true;        // not where a walk to learn about a graph comes by them
inline thread_local Tape* tape = nullptr;                     // keeps what each op read and made
inline thread_local OpClock* op_clock = nullptr;              // is told how long each op took
inline thread_local bool check_finite = false;                // results and gradients must be finite

}  // namespace detail

// const Exchange values_only(detail::recording, false);
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

}  // namespace whence

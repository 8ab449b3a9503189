// Recording: the switch that lets operations make nodes, and the other thread-local state of autograd.
#pragma once

#include <type_traits>
#include <utility>

namespace whence {

class Node;

namespace detail {
inline thread_local bool recording = true;  // ops make nodes: not inside NoGrad, an op's forward, or a plain backward
inline thread_local bool releasing =
    false;  // true if the running backward frees what ops saved: they may write over it
inline thread_local Node* saving_node = nullptr;    // the node whose forward runs: what the op saves belongs to it
inline thread_local Node* backward_node = nullptr;  // the node whose backward runs
}  // namespace detail

// Sets a variable until the end of the block: const Exchange values_only(detail::recording, false);
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

// True by default. False inside NoGrad, inside every op's forward, and in backward unless create_graph.
inline bool recording() { return detail::recording; }

struct RecordingScope : Exchange<bool> {
  explicit RecordingScope(bool on) : Exchange(detail::recording, on) {}
};

// NoGrad no_grad;  from here to the end of the block nothing is recorded, and results have no history.
struct NoGrad : RecordingScope {
  NoGrad() : RecordingScope(false) {}
};

}  // namespace whence

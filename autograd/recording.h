// Whether operations are recorded, and all else that autograd keeps for a thread.
#pragma once

#include <limits>
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
inline thread_local int stretched_axes = std::numeric_limits<int>::max();  // at most, by one op of two operands

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

// One of a thread's stack of T, until it is stopped: the innermost or any other. What it has seen stays.
template <class T> class Stacked {
 public:
  Stacked(const Stacked&) = delete;
  Stacked& operator=(const Stacked&) = delete;
  void stop() {
    if (std::exchange(stopped_, true)) return;
    T** link = &top_;
    while (*link && *link != this) link = &(*link)->Stacked::outer_;
    if (*link) *link = outer_;
  }

 protected:
  explicit Stacked(T*& top) : top_(top), outer_(std::exchange(top, static_cast<T*>(this))) {}
  ~Stacked() { stop(); }
  T* outer() const { return outer_; }

 private:
  T*& top_;
  T* outer_;
  bool stopped_ = false;
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

// While alive, every op of this thread checks its result, forward and backward. The first NaN or infinity is a
// NotFinite that names the op, its line, the index of the number, and the range of each input.
struct CheckFinite : Exchange<bool> {
  CheckFinite() : Exchange(detail::check_finite, true) {}
};

// While alive, add, multiply and their kin of this thread (ops/binary.cpp) may stretch at most `axes` axes to make
// their operands fit: those whose extents differ, and those that one operand lacks. 0: only equal shapes fit. An Error
// names op, line, shapes and axes. Numbers of the program (x * 2.0) stretch nothing, and backward may what forward did.
struct StrictBroadcast : Exchange<int> {
  explicit StrictBroadcast(int axes) : Exchange(detail::stretched_axes, axes) {}
};

}  // namespace whence

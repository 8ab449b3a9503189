// Observers are called for every op that this thread runs while they live. The clock, the tape, the check for numbers
// that are not finite and the capture of intermediates (autograd/inspect/) are observers. Without an observer an op
// costs one more load of a thread-local variable.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/recording.h"
#include "tensor/tensor.h"

namespace whence {

// One run of an op, forward or backward, reported when it has ended.
struct OpRun {
  const char* op;
  Node* node;  // forward: the node it made, or null; backward: the node whose backward ran
  bool backward;
  const OpRun* within;  // the run that called this one; null if the program did
  std::chrono::steady_clock::time_point began;
  std::span<const Tensor> read, made;  // forward: inputs and results; backward: dy and dx. Some may be undefined
};

// The observers of a thread are a stack; any of them may stop(), on another thread too while the first runs no op. All
// are called, the innermost first.
class Observer {
 public:
  Observer();
  virtual ~Observer() { stop(); }
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  void stop();  // keeps its results

  // Called after each run of an op. An exception propagates to the caller of the op.
  virtual void saw(const OpRun&) {}
  // Called when x passes the probe of this full name. Returns x, or a tensor that the program uses instead of x.
  virtual Tensor passed(const std::string& /*name*/, const Tensor& x, const Site&) { return x; }
  // True if it wants probes whose names begin with `path`, other than the names in `but`.
  virtual bool wants_under(const std::string& /*path*/, const std::vector<std::string>& /*but*/) const { return false; }

  Observer* outer() const { return outer_; }

 private:
  friend struct ObserversOfThread;
  Observer* outer_;
  Observer** innermost_;  // of the thread that made it; null if it stopped or the thread has ended
};

namespace detail {
inline thread_local Observer* observer = nullptr;  // the innermost
inline thread_local const OpRun* innermost_run = nullptr;
inline thread_local const std::string* scope_path = nullptr;  // path of the innermost Scope

// A run of an op; begins when this is constructed.
class Watched {
 public:
  Watched(const char* op, bool backward) : run_{op, nullptr, backward, innermost_run, {}, {}, {}} {
    if (observer) run_.began = std::chrono::steady_clock::now();
  }
  explicit operator bool() const { return observer != nullptr; }
  void ended(Node* node, std::span<const Tensor> read, std::span<const Tensor> made);  // calls the observers

 private:
  OpRun run_;
  const Exchange<const OpRun*> inside_{innermost_run, &run_};
};

Tensor pass_probe(const char* name, const Tensor& x, const Site& site);
}  // namespace detail

// Names of probes are relative to the innermost Scope of this thread. A module opens a Scope with its path.
struct Scope : Exchange<const std::string*> {
  explicit Scope(const std::string& path) : Exchange(detail::scope_path, &path) {}  // REQUIRES: `path` outlives it
};

// Names an intermediate: returns x, which every observer may look at or replace (autograd/inspect/capture.h).
inline Tensor probe(const char* name, const Tensor& x, Site site = Site::current()) {
  return detail::observer ? detail::pass_probe(name, x, site) : x;
}

// True if an observer of this thread wants probes under `path`, other than the names in `but`.
bool is_watched_under(const std::string& path, const std::vector<std::string>& but = {});

}  // namespace whence

// Observers: who is told what the ops of this thread do, while it is alive. A clock, a tape, the check for numbers that
// are not finite and a capture of intermediates (autograd/inspect/) are observers. Without one an op costs a
// thread-local load more.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/recording.h"
#include "tensor/tensor.h"

namespace whence {

// One run of an op, forward or backward, when it has ended.
struct OpRun {
  const char* op;
  Node* node;  // that forward made, or null; in backward the node whose backward ran
  bool backward;
  const OpRun* within;  // the run that called this one; null: the program did
  std::chrono::steady_clock::time_point began;
  std::span<const Tensor> read, made;  // forward: inputs and results; backward: dy and dx. Some may be undefined
};

// The observers of a thread are a stack, from which any may stop(). All are told, the innermost first.
class Observer {
 public:
  Observer();
  virtual ~Observer() { stop(); }
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  void stop();  // what it has seen stays

  // An exception of it goes to whoever called the op.
  virtual void saw(const OpRun&) {}
  // Returns x, or what the program is to go on with in place of x, which passed the probe of this full name.
  virtual Tensor passed(const std::string& /*name*/, const Tensor& x, const Site&) { return x; }
  // True if it asks for a probe whose name begins with `path`, other than those of `but` spelled out.
  virtual bool wants_under(const std::string& /*path*/, const std::vector<std::string>& /*but*/) const { return false; }

  Observer* outer() const { return outer_; }

 private:
  Observer* outer_;
  bool stopped_ = false;
};

namespace detail {
inline thread_local Observer* observer = nullptr;  // the innermost
inline thread_local const OpRun* innermost_run = nullptr;
inline thread_local const std::string* scope_path = nullptr;  // of the innermost Scope

// A run of an op from its construction on.
class Watched {
 public:
  Watched(const char* op, bool backward) : run_{op, nullptr, backward, innermost_run, {}, {}, {}} {
    if (observer) run_.began = std::chrono::steady_clock::now();
  }
  explicit operator bool() const { return observer != nullptr; }
  void ended(Node* node, std::span<const Tensor> read, std::span<const Tensor> made);  // tells the observers

 private:
  OpRun run_;
  const Exchange<const OpRun*> inside_{innermost_run, &run_};
};

Tensor pass_probe(const char* name, const Tensor& x, const Site& site);
}  // namespace detail

// Names of probes are relative to the innermost Scope of this thread. A module opens one with its path.
struct Scope : Exchange<const std::string*> {
  explicit Scope(const std::string& path) : Exchange(detail::scope_path, &path) {}  // REQUIRES: `path` outlives it
};

// Names an intermediate: returns x, which every observer may look at or replace (autograd/inspect/capture.h).
inline Tensor probe(const char* name, const Tensor& x, Site site = Site::current()) {
  return detail::observer ? detail::pass_probe(name, x, site) : x;
}

// True if an observer of this thread asks for probes under `path`, other than those of `but` spelled out.
bool is_watched_under(const std::string& path, const std::vector<std::string>& but = {});

}  // namespace whence

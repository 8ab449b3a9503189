// Errors that name place, op, what was given, what is required, and what to do.
//   "train.cpp:84: matmul: a is [2,3,4], b is [2,5,4]; inner extents 4 and 5 differ; transpose b?"
#pragma once

#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace whence {

using Site = std::source_location;  // where a public function was called

// The engine refused to go on. Nothing was changed before it was thrown.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bad usage or bad input of a program: an option, a file, a path. Programs exit with 2 instead of 1.
class InputError : public Error {
 public:
  using Error::Error;
};

// "train.cpp:84"
std::string to_string(const Site& site);

// The arguments, one after another, as text.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Throws Error "place: op: message". The place is that of the innermost CallSite on this thread.
[[noreturn]] void fail(std::string_view op, const std::string& message);

// While alive, errors of this thread name `site`. One thread-local store; costs nothing else.
class CallSite {
 public:
  explicit CallSite(const Site& site) : previous_(current_) { current_ = &site; }
  ~CallSite() { current_ = previous_; }
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;
  static const Site* current() { return current_; }

 private:
  const Site* previous_;
  static inline thread_local const Site* current_ = nullptr;
};

}  // namespace whence

// Errors that name place, op, what was given, what is required, and what to do.
//   "train.cpp:84: matmul: a is [2,3,4], b is [2,5,4]; inner extents 4 and 5 differ; transpose b?"
#pragma once

#include <cstddef>
#include <new>
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace whence {

using Site = std::source_location;  // where a public function was called

// The arguments, one after another, as text.
template <class... Parts> std::string to_text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  if (out.bad()) throw std::bad_alloc();  // streams swallow it, and what was said would be cut
  return out.str();
}

// The engine refused to go on. It changed nothing before it threw this, unless who throws it says so.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  template <class... Parts>
    requires(sizeof...(Parts) > 1)
  explicit Error(const Parts&... parts) : std::runtime_error(to_text(parts...)) {}
};

// What was given cannot be: an option, a name, a size.
class InputError : public Error {
 public:
  using Error::Error;
};

// The system refused to open, read or write.
class SystemError : public InputError {
 public:
  using InputError::InputError;
};

// A loss, gradient or weight is NaN or infinite where a finite number is required.
class NotFinite : public Error {
 public:
  using Error::Error;
};

// A device has no more memory, even after every cached block was given back. The engine is still usable: free some
// tensors, or ask for smaller ones.
class OutOfMemory : public Error {
 public:
  // Bytes. `free` and `capacity` are the whole device's, or 0 where unknown; `live` is what tensors hold.
  struct Numbers {
    std::size_t asked = 0, free = 0, live = 0, capacity = 0;
  };
  OutOfMemory(const std::string& text, Numbers its_numbers) : Error(text), numbers(its_numbers) {}
  Numbers numbers;
};

// "train.cpp:84"
std::string to_string(const Site& site);

// "1.5 GiB", "640 KiB", "12 bytes"
std::string bytes_text(std::size_t bytes);

// "place: op: message", the text of an Error. The place is that of the innermost CallSite on this thread.
std::string error_at_call_site(std::string_view op, const std::string& message);
// Throws Error with that text. Several arguments are one message: to_text.
[[noreturn]] void fail(std::string_view op, const std::string& message);
template <class... Parts>
  requires(sizeof...(Parts) > 1)
[[noreturn]] void fail(std::string_view op, const Parts&... parts) {
  fail(op, to_text(parts...));
}

// While alive, errors of this thread name `site`, and memory that it asks for counts for `op` (text that outlives the
// program's tensors; null: no op). Costs two thread-local stores and nothing else.
class CallSite {
 public:
  explicit CallSite(const Site& site, const char* op = nullptr) : previous_(current_), previous_op_(op_) {
    current_ = &site, op_ = op;
  }
  ~CallSite() { current_ = previous_, op_ = previous_op_; }
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;
  static const Site* current() { return current_; }
  // The user's line, wherever a public function was entered.
  static Site here(const Site& site = Site::current()) { return current_ ? *current_ : site; }
  static const char* op() { return op_; }

 private:
  const Site* previous_;
  const char* previous_op_;
  static inline thread_local const Site* current_ = nullptr;
  static inline thread_local const char* op_ = nullptr;
};

}  // namespace whence

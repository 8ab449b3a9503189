// Errors that name the place and the op, and say what was given, what is required and what to do.
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

// Returns the arguments as text, one after another.
template <class... Parts> std::string to_text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  if (out.bad()) throw std::bad_alloc();  // streams swallow bad_alloc, and the text would be cut
  return out.str();
}

// Thrown when the engine refuses to go on. Strong guarantee: state is unchanged, unless the function's comment says
// otherwise.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  template <class... Parts>
    requires(sizeof...(Parts) > 1)
  explicit Error(const Parts&... parts) : std::runtime_error(to_text(parts...)) {}
};

// An argument from outside is not allowed: an option, a name, a size.
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

// A device has no more memory, even after every cached block was given back. The engine stays usable: free some
// tensors, or allocate smaller ones.
class OutOfMemory : public Error {
 public:
  // In bytes. `free` and `capacity` describe the whole device, 0 if unknown; `live` is held by tensors.
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

// Returns "place: op: message", the text of an Error. The place is that of the innermost CallSite on this thread.
std::string error_at_call_site(std::string_view op, const std::string& message);
// Throws Error with that text. Several arguments are joined by to_text.
[[noreturn]] void fail(std::string_view op, const std::string& message);
template <class... Parts>
  requires(sizeof...(Parts) > 1)
[[noreturn]] void fail(std::string_view op, const Parts&... parts) {
  fail(op, to_text(parts...));
}

// While a CallSite is alive, errors of this thread name `site`, and its allocations count for `op` (text that outlives
// the program's tensors; null: no op). Costs two thread-local stores.
class CallSite {
 public:
  explicit CallSite(const Site& site, const char* op = nullptr) : previous_(current_), previous_op_(op_) {
    current_ = &site, op_ = op;
  }
  ~CallSite() { current_ = previous_, op_ = previous_op_; }
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;
  static const Site* current() { return current_; }
  // Returns the user's line, at which the outermost public function was entered.
  static Site here(const Site& site = Site::current()) { return current_ ? *current_ : site; }
  static const char* op() { return op_; }

 private:
  const Site* previous_;
  const char* previous_op_;
  static inline thread_local const Site* current_ = nullptr;
  static inline thread_local const char* op_ = nullptr;
};

}  // namespace whence

// Errors that name the place and the op, and say what was given, what is required and what to do.
//   "train.cpp:84: matmul: a is [2,3,4], b is [2,5,4]; inner extents 4 and 5 differ; transpose b?"
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <new>
#include <optional>
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

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

// ---- Names in errors: lists of known names, and the one nearest to an unknown one ("did you mean").

// Counts the insertions, deletions, substitutions and swaps of neighbours that turn one name into the other.
[[nodiscard]] std::size_t edit_distance(std::string_view from, std::string_view to);

// Returns the candidate that `name` was probably meant to be: one that begins with it, or one within two edits or a
// third of its length. Case does not count: "CoPE" means "cope".
[[nodiscard]] std::optional<std::string> nearest_name(
    std::string_view name, const std::vector<std::string>& candidates);

// Returns "rope, cope": part(item) of each item, where `part` is a member or a function.
template <class Items, class Projection = std::identity>
[[nodiscard]] std::string joined(const Items& items, const Projection& part = {}, std::string_view separator = ", ") {
  std::string text;
  for (const auto& item : items) text += to_text(text.empty() ? "" : separator, std::invoke(part, item));
  return text;
}

// Returns the first five, and how many more there are.
[[nodiscard]] std::string first_few(const std::vector<std::string>& texts, const char* separator);

// Throws InputError "model: 'gpt2-124' given; one of gpt2-124m, neox-350m required; did you mean 'gpt2-124m'?"
[[noreturn]] void refuse_name(const char* what, const std::string& given, const std::vector<std::string>& known);

// Returns the choice whose to_string is `given`. Else throws InputError "schedule: 'cosin' given; constant, linear or
// cosine required".
template <class Choice>
Choice chosen(const char* what, const std::string& given, std::initializer_list<Choice> choices) {
  std::string known;
  for (const Choice& choice : choices) {
    const std::string name(to_string(choice));
    if (given == name) return choice;
    known += (known.empty() ? "" : &choice + 1 == choices.end() ? " or " : ", ") + name;
  }
  throw InputError(what, ": '", given, "' given; ", known, " required");
}

// True if `name` matches the pattern, in which '*' is any run of characters.
bool matches(const std::string& pattern, const std::string& name);

}  // namespace whence

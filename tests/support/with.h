// What belongs to the whole program is another value while an object lives, and what it was after that: also where a
// case ends by an exception.
#pragma once

#include <type_traits>
#include <utility>

#include "tensor/parallel.h"

namespace whence::test {

template <class T> class With {
 public:
  With(T& setting, std::type_identity_t<T> value) : setting_(setting), before_(std::exchange(setting, value)) {}
  ~With() { setting_ = before_; }
  With(const With&) = delete;
  With& operator=(const With&) = delete;

 private:
  T& setting_;
  const T before_;
};

class WithThreads {
 public:
  explicit WithThreads(int count) : before_(threads()) { set_threads(count); }
  ~WithThreads() { set_threads(before_); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;

 private:
  const int before_;
};

}  // namespace whence::test

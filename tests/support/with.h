// Sets a global value during an object's lifetime, and restores it afterwards, also if a case ends by an
// exception.
#pragma once

#include <type_traits>
#include <utility>

#include "examples/whence/verify/compare.h"

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

using whence::WithThreads;

}  // namespace whence::test

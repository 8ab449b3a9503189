// What is wrong with files, for programs that tell it from other errors.
#pragma once

#include "tensor/error.h"

namespace whence {

// What was read from a file, or the data that it holds, is not what it must be.
class FileError : public InputError {
 public:
  using InputError::InputError;
};

// A whole checkpoint, of another model or run.
class DoesNotFit : public InputError {
 public:
  using InputError::InputError;
};

}  // namespace whence

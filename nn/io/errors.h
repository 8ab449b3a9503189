// Errors of files, for programs that tell them from other errors.
#pragma once

#include "tensor/error.h"

namespace whence {

// A file's bytes, or the data that they hold, are not as required.
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

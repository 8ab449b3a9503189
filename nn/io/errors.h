// Errors of files, distinguished from other errors for programs.
#pragma once

#include "tensor/error.h"

namespace whence {

// The bytes of a file, or the data in it, are wrong.
class FileError : public InputError {
 public:
  using InputError::InputError;
};

// A valid checkpoint of another model or run.
class DoesNotFit : public InputError {
 public:
  using InputError::InputError;
};

}  // namespace whence

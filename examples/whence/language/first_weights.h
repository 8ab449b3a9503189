// Weights of another model that a training begins with, whatever that one's scheme was: DroPE, position interpolation.
#pragma once

#include "nn/io/safetensors.h"
#include "nn/layers/module.h"

namespace whence::language {

struct FirstWeights {
  NamedTensors tensors;  // by our paths
  std::string sha256;    // of names, kinds, shapes and numbers
};

// Returns the weights of a run's folder. FileError and SystemError as those files' readers have it.
[[nodiscard]] FirstWeights read_first_weights(const std::string& folder);

// Puts what has the same name and shape into the parameters of a model that may have another scheme. Positional
// parameters that one of them lacks, or that are of another size, stay as they are, or are left out; of any other an
// InputError names it, both shapes, and the option. The three lists say which.
struct Taken {
  std::size_t taken = 0;
  std::vector<std::string> dropped, fresh;
};
Taken take_weights(const NamedTensors& from, const std::vector<Module::Parameter>& into, const std::string& place);

}  // namespace whence::language

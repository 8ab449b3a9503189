// Initial weights from another model, which may have another scheme: DroPE, position interpolation.
#pragma once

#include "nn/io/safetensors.h"
#include "nn/layers/module.h"

namespace whence::language {

struct FirstWeights {
  NamedTensors tensors;  // by our paths
  std::string sha256;    // of names, kinds, shapes and numbers
};

// Returns the weights in a run's folder. FileError and SystemError as from the readers of these files.
[[nodiscard]] FirstWeights read_first_weights(const std::string& folder);

// Copies tensors of the same name and shape into a model that may have another scheme. A positional parameter that only
// one model has, or that differs in size, keeps its initial value or is dropped. For any other, an InputError names it,
// both shapes, and the option. The three lists name the tensors.
struct Taken {
  std::size_t taken = 0;
  std::vector<std::string> dropped, fresh;
};
Taken take_weights(const NamedTensors& from, const std::vector<Module::Parameter>& into, const std::string& place);

}  // namespace whence::language

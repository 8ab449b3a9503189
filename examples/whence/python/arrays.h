// Arrays of numpy or PyTorch as tensors, without a copy, and tensors as such arrays.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <set>
#include <string>

#include "nn/io/safetensors.h"
#include "tensor/tensor.h"

namespace whence {

// Names the array's own numbers where its strides go forward, as those of torch's views do. InputError that begins with
// `name` where it is no array that this door takes.
Tensor borrowed(const std::string& name, nanobind::handle given);
NamedTensors borrowed(const nanobind::dict& arrays);

// Arrays over our own memory. No two share it, nor does one share what was given: whoever writes into one changes no
// other.
class Results {
 public:
  explicit Results(bool of_torch) : of_torch_(of_torch) {}

  nanobind::object operator()(const Tensor& result);

 private:
  bool of_torch_;
  std::set<const std::byte*> seen_;
};

}  // namespace whence

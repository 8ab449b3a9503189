// Arrays of numpy or PyTorch as tensors, without a copy, and tensors as such arrays; and the parts of the module.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <set>
#include <string>

#include "nn/io/safetensors.h"
#include "tensor/tensor.h"

namespace whence {

// Returns a tensor over the array's own numbers; negative strides, which torch's views never have, are refused. The
// InputError begins with `name`.
Tensor borrowed(const std::string& name, nanobind::handle given);
NamedTensors borrowed(const nanobind::dict& arrays);

// Makes arrays over our own memory. They share memory neither with each other nor with the inputs: writing into one
// changes no other.
class Results {
 public:
  explicit Results(bool of_torch) : of_torch_(of_torch) {}

  nanobind::object operator()(const Tensor& result);

 private:
  bool of_torch_;
  std::set<const std::byte*> seen_;
};

// Parts of the module, each of one file: the benches' cases; a run of `whence train`, or a scheme, with its model and one
// pass of it looked into.
void declare_benches(nanobind::module_& module);
void declare_loaded_run(nanobind::module_& module);

}  // namespace whence

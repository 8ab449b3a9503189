// Queries, keys and values of somebody else, in place of a model's own.
#pragma once

#include <string>

#include "nn/transformer.h"
#include "tensor/tensor.h"

namespace whence::look {

struct Given {
  Tensor q, k, v;    // [1 h t d]
  Tensor cotangent;  // [1 h t d], the gradient of the output; ones where the file has none
  Tensor x;          // [1 t h*d], what attention reads; undefined where the file has none
};

// A file of safetensors with q, k and v, each [h t d] or [1 h t d], and if wanted cotangent, as they are, and x, [t
// h*d] or [1 t h*d]. InputError when a tensor is missing, is not known, does not fit, or is not made of finite numbers.
[[nodiscard]] Given read_given(const std::string& file, DType dtype);

// The sum of output times cotangent, a scalar, of the model's first layer; what is given becomes leaves of the graph.
// REQUIRES: the output's projection changes nothing
[[nodiscard]] Tensor loss_of_given(const Transformer& model, const Given& given);

}  // namespace whence::look

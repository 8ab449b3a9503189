// Queries, keys and values from a file, in place of those that the model computes.
#pragma once

#include <string>

#include "nn/transformer.h"
#include "tensor/tensor.h"

namespace whence::look {

struct Given {
  Tensor q, k, v;    // [1 h t d]
  Tensor cotangent;  // [1 h t d], the gradient of the output; ones if the file has none
  Tensor x;          // [1 t h*d], the input of attention; undefined if the file has none
};

// Reads a safetensors file with q, k and v, each [h t d] or [1 h t d]. Optional: cotangent of the same shape, and x, [t h*d]
// or [1 t h*d]. Throws InputError if a tensor is missing, unknown, of a wrong shape, or not finite.
[[nodiscard]] Given read_given(const std::string& file, DType dtype);

// Returns the sum of output * cotangent of the model's first layer, a scalar. The given tensors become leaves of the graph.
// REQUIRES: the output projection is the identity
[[nodiscard]] Tensor loss_of_given(const Transformer& model, const Given& given);

}  // namespace whence::look

#include "examples/whence/look/given.h"

#include <algorithm>
#include <cmath>

#include "nn/io/safetensors.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

// As `dtype`, with a batch of one in front; undefined when the file has none of that name.
Tensor tensor_of(
    const SafetensorsFile& content, const std::string& file, const std::string& name, int rank, DType dtype) {
  for (const auto& [known, tensor] : content.tensors) {
    if (known != name) continue;
    if (!is_floating(tensor.dtype()))
      throw FileError(file, ": ", name, " is ", to_string(tensor.dtype()), "; floating numbers required");
    const bool batched = tensor.rank() == rank && tensor.size(0) == 1;
    if ((tensor.rank() != rank - 1 && !batched) || tensor.numel() == 0) {
      throw FileError(file, ": ", name, " is ", tensor.shape(), "; ",
          rank == 4 ? "[heads, tokens, dims]" : "[tokens, dims]",
          " required, or one of these in a batch of one, none of them 0");
    }
    const Tensor cast = raw::cast(tensor, dtype);
    if (!std::ranges::all_of(cast.to_vector(), [](double number) { return std::isfinite(number); }))
      throw FileError(
          file, ": ", name, " holds NaN or infinity as ", to_string(dtype), "; numbers that are finite there required");
    std::vector<index_t> extents{1};
    for (int axis = batched ? 1 : 0; axis < tensor.rank(); ++axis) extents.push_back(tensor.size(axis));
    return raw::reshape(cast, Shape(extents));
  }
  return {};
}

void require_shape(const std::string& file, const std::string& name, const Tensor& tensor, const Shape& shape) {
  if (tensor.defined() && tensor.shape() != shape)
    throw FileError(file, ": ", name, " is ", tensor.shape(), " with its batch; ", shape, " required, to go with q");
}

}  // namespace

Given read_given(const std::string& file, DType dtype) {
  const SafetensorsFile content = read_safetensors(file);
  for (const auto& [name, tensor] : content.tensors)
    if (name != "q" && name != "k" && name != "v" && name != "cotangent" && name != "x")
      throw FileError(file, ": a tensor ", name, " found; q, k, v, and if wanted cotangent and x, required");
  const auto read = [&](const char* name, int rank) { return tensor_of(content, file, name, rank, dtype); };
  Given given{read("q", 4), read("k", 4), read("v", 4), read("cotangent", 4), read("x", 3)};
  const std::pair<const char*, Tensor*> by_head[] = {
      {"q", &given.q}, {"k", &given.k}, {"v", &given.v}, {"cotangent", &given.cotangent}};
  for (const auto& [name, tensor] : by_head) {
    if (!tensor->defined() && tensor != &given.cotangent)
      throw FileError(file, ": no tensor ", name, "; q, k and v required");
    require_shape(file, name, *tensor, given.q.shape());
  }
  const Shape& shape = given.q.shape();
  require_shape(file, "x", given.x, {1, shape[2], shape[1] * shape[3]});
  if (!given.cotangent.defined()) given.cotangent = Tensor::full(shape, 1, dtype);
  return given;
}

}  // namespace whence::look

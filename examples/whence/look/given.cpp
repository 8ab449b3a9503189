#include "examples/whence/look/subject.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "autograd/backward.h"
#include "autograd/inspect/capture.h"
#include "autograd/ops.h"
#include "nn/io/safetensors.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

// Casts to `dtype` and adds a batch axis of 1 if there is none.
Tensor read_tensor(const std::string& file, const std::string& name, const Tensor& tensor, int rank, DType dtype) {
  if (!is_floating(tensor.dtype()))
    throw FileError(file, ": ", name, " is ", to_string(tensor.dtype()), "; floating-point numbers required");
  const bool batched = tensor.rank() == rank && tensor.size(0) == 1;
  if ((tensor.rank() != rank - 1 && !batched) || tensor.numel() == 0)
    throw FileError(file, ": ", name, " is ", tensor.shape(), "; ",
        rank == 4 ? "[heads, tokens, dims]" : "[tokens, dims]",
        " required, or the same with a batch axis of 1, no axis empty");
  const Tensor cast = raw::cast(tensor, dtype);
  if (!std::ranges::all_of(cast.to_vector(), [](double number) { return std::isfinite(number); }))
    throw FileError(file, ": ", name, " holds NaN or infinity as ", to_string(dtype), "; finite numbers required");
  return batched ? cast : raw::unsqueeze(cast, 0);
}

}  // namespace

Given read_given(const std::string& file, DType dtype) {
  const SafetensorsFile content = read_safetensors(file);
  std::map<std::string, Tensor> found;
  for (const auto& [name, tensor] : content.tensors) {
    if (name != "q" && name != "k" && name != "v" && name != "cotangent" && name != "x")
      throw FileError(file, ": a tensor ", name, " found; q, k, v, and optionally cotangent and x, required");
    found[name] = read_tensor(file, name, tensor, name == "x" ? 3 : 4, dtype);
  }
  for (const char* name : {"q", "k", "v"})
    if (!found.contains(name)) throw FileError(file, ": no tensor ", name, "; q, k and v required");
  const Shape shape = found["q"].shape();
  const index_t key_heads = found["k"].size(1);
  const bool shared = shape[1] % key_heads == 0;
  const Shape keys{1, shared ? key_heads : shape[1], shape[2], shape[3]};
  for (const auto& [name, tensor] : found) {
    const bool of_keys = name == "k" || name == "v";
    const Shape fits = name == "x" ? Shape{1, shape[2], shape[1] * shape[3]} : of_keys ? keys : shape;
    if (tensor.shape() != fits)
      throw FileError(file, ": ", name, " is ", tensor.shape(), " with its batch; ", fits,
          of_keys && !shared ? ", or a divisor of these heads," : "", " required, to match ",
          of_keys && shared ? "q and k" : "q");
  }
  found.try_emplace("cotangent", Tensor::full(shape, 1, dtype));
  return {found["q"], found["k"], found["v"], found["cotangent"], found["x"]};
}

Tensor loss_of_given(const Transformer& model, const Given& given) {
  Capture in_their_place;
  const auto replace = [&](const char* name, const Tensor& value) {
    in_their_place.edit(
        to_text("blocks.0.attention.", name), [leaf = requires_grad(value.detach())](const Tensor&) { return leaf; });
  };
  replace("q", given.q), replace("k", given.k), replace("v", given.v);
  const Shape& shape = given.q.shape();
  const Shape merged{1, shape[2], shape[1] * shape[3]};
  const Tensor x = given.x.defined() ? requires_grad(given.x.detach()) : Tensor::zeros(merged, given.q.dtype());
  const Tensor output = model.attention(0)(x, Sequence::run(shape[2], model.options().causal));
  return sum(output * reshape(permute(given.cotangent, {0, 2, 1, 3}), merged));
}

}  // namespace whence::look

#include "nn/fused.h"

#include "autograd/inspect/probe.h"

namespace whence {

// One kernel each way for both.
SumAndNorm add_then_norm(const Tensor& x, const Tensor& added, const Norm& norm, Site at) {
  if (x.device().is_gpu()) {
    const Scope scope(norm.path());
    return add_norm(x, added, norm.weight(), norm.bias(), norm.epsilon(), at);
  }
  const Tensor sum = add(x, added, at);
  return {sum, norm(sum, at)};
}

// One large product for three; and where the numbers of each head lie by themselves, one call multiplies all heads.
Heads project(const Tensor& x, const Linear& query, const Linear& key, const Linear& value, index_t heads, Site at) {
  if (x.device().is_gpu()) {
    const auto both = [](const Linear& layer) { return Projection{layer.weight(), layer.bias()}; };
    return project_heads(x, both(query), both(key), both(value), heads, at);
  }
  const auto by_head = [&](const Linear& layer) {
    const Tensor y = layer(x, at);
    return permute(
        reshape(y, {y.size(0), y.size(1), heads, y.size(2) / heads}), {0, 2, 1, 3});  // [b t h d] -> [b h t d]
  };
  return {by_head(query), by_head(key), by_head(value)};
}

// GELU inside the first product, its derivative inside one of backward's.
Tensor feed_forward(const MLP& mlp, const Tensor& x, const Pass& pass, Site at) {
  if (!x.device().is_gpu() || !mlp.is_gelu_alone(pass) || Capture::wants_under(mlp.path())) return mlp(x, pass, at);
  const Scope scope(mlp.path());
  return linear_gelu_linear(x, mlp.in().weight(), mlp.in().bias(), mlp.out().weight(), mlp.out().bias(), at);
}

}  // namespace whence

// The forms of layers that a GPU runs: fewer kernels, by the ops of autograd/joined/joined_ops.h.
#include "autograd/joined/joined_ops.h"
#include "autograd/observer.h"
#include "nn/layer_forms.h"

namespace whence {
namespace {

struct FusedForms final : LayerForms {
  // One kernel for both in each direction.
  SumAndNorm add_then_norm(const Tensor& x, const Tensor& added, const Norm& norm, Site site) const override {
    const Scope scope(norm.path());
    return add_norm(x, added, norm.weight(), norm.bias(), norm.epsilon(), site);
  }

  // One large product instead of three.
  Heads project(const Tensor& x, const Linear& query, const Linear& key, const Linear& value, index_t heads,
      Site site) const override {
    const auto both = [](const Linear& layer) { return Projection{layer.weight(), layer.bias()}; };
    const auto [q, k, v] = project_heads(x, both(query), both(key), both(value), heads, site);
    return {q, k, v};
  }
  // If each head is contiguous, one call multiplies all heads.
  Heads apart(const Heads& heads, Site site) const override {
    const auto& [query, key, value] = heads;
    if (query.is_contiguous() && key.is_contiguous() && value.is_contiguous()) return heads;
    const auto [q, k, v] = contiguous_all({query, key, value}, site);
    return {q, k, v};
  }

  // In 16 bits GELU is fused into the first product. Backward computes its derivative and the bias gradient in one
  // pass.
  Tensor feed_forward(const MLP& mlp, const Tensor& x, const Pass& pass, Site site) const override {
    if (!mlp.is_gelu_alone(pass) || is_watched_under(mlp.path())) return mlp(x, pass, site);
    const Scope scope(mlp.path());
    return linear_gelu_linear(x, mlp.in().weight(), mlp.in().bias(), mlp.out().weight(), mlp.out().bias(), site);
  }
};

const FusedForms forms;
[[maybe_unused]] const bool registered = (detail::fused_forms = &forms, true);

}  // namespace
}  // namespace whence

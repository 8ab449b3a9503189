// Forms of layers that a device may compute in fewer kernels than the layers are written in (nn/fused.cpp). Each
// function here is the plain form; tests/cuda/layers.cpp requires the two to be equal.
#pragma once

#include "nn/attention/layer_input.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"

namespace whence {

struct Heads {
  Tensor query, key, value;  // [b h t d], [b g t d], [b g t d]
};

struct LayerForms {
  virtual ~LayerForms() = default;

  // {x + added, norm(x + added)}, of one shape [..., c]
  [[nodiscard]] virtual SumAndNorm add_then_norm(
      const Tensor& x, const Tensor& added, const Norm& norm, Site site = Site::current()) const {
    const Tensor sum = add(x, added, site);
    return {sum, norm(sum, site)};
  }

  // Projects x [b t c] by each of the three and splits the heads: `heads` of queries.  (Vaswani et al. 2017, section
  // 3.2.2)
  [[nodiscard]] virtual Heads project(const Tensor& x, const Linear& query, const Linear& key, const Linear& value,
      index_t heads, Site site = Site::current()) const {
    const index_t width = query.weight().size(0);
    const auto of_heads = [&](const Linear& layer) {
      return by_head(layer(x, site), layer.weight().size(0) * heads / width, site);
    };
    return {of_heads(query), of_heads(key), of_heads(value)};
  }
  // Returns the same heads in the layout that multiplies all of them at once.
  [[nodiscard]] virtual Heads apart(const Heads& heads, Site = Site::current()) const { return heads; }

  // mlp(x, pass), x [..., c]
  [[nodiscard]] virtual Tensor feed_forward(
      const MLP& mlp, const Tensor& x, const Pass& pass, Site site = Site::current()) const {
    return mlp(x, pass, site);
  }
};

namespace detail {
inline const LayerForms plain_forms;
inline const LayerForms* fused_forms = nullptr;  // set by nn/fused.cpp
}  // namespace detail

// Returns the fused forms if a GPU has them, else the plain ones.
inline const LayerForms& forms_on(Device device) {
  return device.is_gpu() && detail::fused_forms ? *detail::fused_forms : detail::plain_forms;
}

}  // namespace whence

// Numbers by head, for attention and for schemes: the layer's input split into heads, rows of the queries, and
// grouped-query attention, in which neighbouring heads of queries share one head of keys and values. Letters: h heads of
// queries, g heads of keys. Query head n reads key head n / (h / g).         Ainslie et al. 2023, arXiv:2305.13245
#pragma once

#include "autograd/ops.h"
#include "nn/attention/position.h"
#include "tensor/error.h"

namespace whence {

// Returns x, [b j c]. Error if attention runs on bare queries, keys and values.
[[nodiscard]] inline const Tensor& layer_input(const char* scheme, const AttendContext& context) {
  if (!context.x.defined())
    fail(scheme, "no layer input given; x [batch, key, dim] required; in decoding, Claims::reads_x too");
  return context.x;
}

// [b t (h n)] -> [b h t n]
[[nodiscard]] inline Tensor by_head(const Tensor& x, index_t heads, Site site = Site::current()) {
  return permute(reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads}, site), {0, 2, 1, 3}, site);
}

// Returns the queries' part of all keys along `axis`: queries are the keys from first_row on.
[[nodiscard]] inline Tensor of_queries(
    const Tensor& of_keys, int axis, const AttendContext& context, Site site = Site::current()) {
  return slice(of_keys, axis, context.first_row, context.first_row + context.query.size(2), 1, site);
}

// Multiplies x [b|1 h m k] by its group's y, [b g k n] -> [b h m n]. y is expanded as a view without a copy. Its
// gradient is the sum over the heads of each group, in order.
[[nodiscard]] inline Tensor matmul_by_group(
    const Tensor& x, const Tensor& y, double scale = 1, Site site = Site::current()) {
  const index_t heads = x.size(1), key_heads = y.size(1);
  if (key_heads == heads || key_heads == 1) return matmul(x, y, scale, site);
  const Tensor groups = reshape(x, {x.size(0), key_heads, heads / key_heads, x.size(2), x.size(3)}, site);
  const Tensor z = matmul(groups, unsqueeze(y, 2, site), scale, site);  // [b g h/g m n]
  return reshape(z, {z.size(0), heads, z.size(3), z.size(4)}, site);
}

// Copies x [b g j n] to each query head of a group: [b h j n].
[[nodiscard]] inline Tensor of_query_heads(const Tensor& x, index_t heads, Site site = Site::current()) {
  if (x.size(1) == heads) return x;
  const Shape shared{x.size(0), x.size(1), heads / x.size(1), x.size(2), x.size(3)};
  return reshape(expand(unsqueeze(x, 2, site), shared, site), {x.size(0), heads, x.size(2), x.size(3)}, site);
}

}  // namespace whence

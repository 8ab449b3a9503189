// The layer's input x for schemes that read it: split into heads, rows of the queries.
#pragma once

#include "autograd/ops.h"
#include "nn/attention/position.h"
#include "tensor/error.h"

namespace whence {

// Returns x, [b j c]. Error if attention runs on bare queries, keys and values.
[[nodiscard]] inline const Tensor& layer_input(const char* scheme, const AttendContext& context) {
  if (!context.x.defined()) fail(scheme, "no layer input given; x [batch, key, dim] required, as the scheme reads it");
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

}  // namespace whence

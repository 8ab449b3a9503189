// Samples of autograd/ops/project_heads.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

using Inputs = std::vector<Tensor>;

Projection projection(const Inputs& in, std::size_t which) {
  return {in[1 + which], in.size() > 4 ? in[4 + which] : Tensor()};
}

CheckedSample projection_sample(
    std::string name, const Shape& x, index_t heads, index_t dim, bool biased, bool unread = false, index_t group = 1) {
  Inputs inputs{draw::normal(x)};
  const index_t width = heads * dim, key_width = width / group;
  for (const index_t each : {width, key_width, key_width}) inputs.push_back(draw::normal({each, x[2]}));
  if (biased)
    for (const index_t each : {width, key_width, key_width}) inputs.push_back(draw::normal({each}));
  return {std::move(name), inputs, [heads, unread](const Inputs& in) {
            const auto [q, k, v] = project_heads(in[0], projection(in, 0), projection(in, 1), projection(in, 2), heads);
            return unread ? concat_along(1, {q, v}) : concat_along(1, {q, k, v});
          }};
}

Samples projection_samples() {
  return {projection_sample("two heads", {2, 3, 4}, 2, 3, true), projection_sample("no biases", {1, 4, 3}, 1, 2, false),
      projection_sample("heads of 8", {2, 2, 8}, 2, 8, true),
      projection_sample("keys that nobody reads", {1, 2, 3}, 2, 2, true, true),
      projection_sample("heads that share keys", {2, 3, 4}, 4, 2, true, false, 2),
      projection_sample("one token", {1, 1, 2}, 1, 1, true), projection_sample("no tokens", {2, 0, 3}, 1, 2, true)};
}

std::vector<BadInput> projection_refusals() {
  const Projection other{draw::zeros(4, 3), {}}, narrow{draw::zeros(2, 3), {}},
      biased{draw::zeros(4, 3), draw::zeros(4)};
  const Tensor x = draw::zeros(1, 2, 3);
  return {
      refusal("project_heads: x is [2,3]; [b t c] required", project_heads, draw::zeros(2, 3), other, other, other, 2),
      refusal("project_heads: query's weight is [4,3] for 3 heads; a multiple of them required", project_heads, x,
          other, other, other, 3),
      refusal("project_heads: value is [2,3]; [4,3] required", project_heads, x, other, other, narrow, 2),
      refusal("project_heads: key's weight is [2,3] for 1 heads of queries with 4 dims; as many heads, or a divisor, "
              "required",
          project_heads, x, other, narrow, narrow, 1),
      refusal("project_heads: a bias for key alone given; all three or none required", project_heads, x, other, biased,
          other, 2)};
}

// [q; k; v] of the first sample
Tensor projection_reference(const Inputs& in) {
  std::vector<Tensor> parts;
  for (std::size_t k = 0; k < 3; ++k)
    parts.push_back(permute(reshape(linear(in[0], in[1 + k], in[4 + k]), {2, 3, 2, 3}), {0, 2, 1, 3}));
  return concat_along(1, parts);
}

const Checked checked({"project_heads", projection_samples, projection_refusals, projection_reference});

}  // namespace
}  // namespace whence

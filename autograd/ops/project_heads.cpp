// The queries, keys and values of all heads as one product, returned as views.  (Vaswani et al. 2017, section 3.2.2)
//   [q | k | v] = x W' + b,  W = [W_q; W_k; W_v],  b = [b_q; b_k; b_v]        x:[b t c] -> [b h t d], twice [b g t d]
//   dx = [dq | dk | dv] W    dW = [dq | dk | dv]' x    db = sum over rows of [dq | dk | dv]
#include <utility>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/ops/heads_in_rows.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using Three = ThreeHeads;
constexpr std::size_t outputs = std::tuple_size_v<Three>;

struct ProjectHeads {
  static constexpr const char* name = "project_heads";
  using Counts = std::array<index_t, outputs>;  // numbers of heads
  index_t heads;
  struct Saved {
    std::array<SavedTensor, 7> inputs;
    SavedTensor weight;  // the concatenated [(h+2g)d c], or undefined
    Counts counts{};
  };

  Three forward(Saved& saved, const Tensor& x, const Tensor& query, const Tensor& key, const Tensor& value,
      const Tensor& query_bias, const Tensor& key_bias, const Tensor& value_bias) const {
    const Three weights{query, key, value}, biases{query_bias, key_bias, value_bias};
    check(x, weights, biases);
    const bool biased = query_bias.defined();
    const index_t width = query.size(0), key_heads = key.size(0) * heads / width, total = width + 2 * key.size(0);
    const Counts counts{heads, key_heads, key_heads};
    const Tensor rows = raw::reshape(x, as_rows(x.shape()));
    const Three transposed{raw::transpose(query), raw::transpose(key), raw::transpose(value)};
    const Tensor joined = Tensor::like(x, {rows.size(0), total});
    const Three made = heads_in_rows(joined, x.size(0), x.size(1), counts);
    if (!kernels(x).matmul_beside(rows, transposed, std::span(biases).first(biased ? outputs : 0), made, {})) {
      const Tensor bias = biased ? Tensor::like(x, {total}) : Tensor(), weight = Tensor::like(x, {total, x.size(2)});
      std::vector<Tensor> from(weights.begin(), weights.end()), to = part_rows(weight, counts);
      if (biased) {
        from.insert(from.end(), biases.begin(), biases.end());
        const std::vector<Tensor> parts = part_rows(bias, counts);
        to.insert(to.end(), parts.begin(), parts.end());
      }
      kernels(x).copy_all(from, to);
      kernels(x).matmul(rows, raw::transpose(weight), biased ? &bias : nullptr, 1, joined);
      saved.weight = weight;
    }
    saved.inputs[0] = x;
    for (std::size_t k = 0; k < outputs; ++k) saved.inputs[1 + k] = weights[k], saved.inputs[4 + k] = biases[k];
    saved.counts = counts;
    return made;
  }

  Grads<7> backward(const Saved& saved, std::span<const Tensor, outputs> dy, Needs<7> needs) const {
    const Tensor x = saved.inputs[0].get(), rows = raw::reshape(x, as_rows(x.shape()));
    const Counts& counts = saved.counts;
    const index_t dim = saved.inputs[1].peek().size(0) / counts[0];
    const bool biased = saved.inputs[4].defined();
    Tensor weight = saved.weight.defined() ? saved.weight.get() : Tensor();
    if (!weight.defined()) {
      weight = Tensor::like(x, {(counts[0] + counts[1] + counts[2]) * dim, x.size(2)});
      const Three parts{saved.inputs[1].get(), saved.inputs[2].get(), saved.inputs[3].get()};
      kernels(x).copy_all(parts, part_rows(weight, counts));
    }
    Three from{dy[0], dy[1], dy[2]};
    for (std::size_t k = 0; k < outputs; ++k)
      if (!from[k].defined()) from[k] = Tensor::zeros({x.size(0), counts[k], x.size(1), dim}, x.dtype(), x.device());
    Tensor joined = rows_of_heads(from);  // the layout that tiles write
    if (!joined.defined()) {
      joined = Tensor::like(x, {rows.size(0), weight.size(0)});
      kernels(x).copy_all(from, heads_in_rows(joined, x.size(0), x.size(1), counts));
    }
    Grads<7> grads;
    if (needs[0]) grads[0] = raw::reshape(raw::matmul(joined, weight), x.shape());
    const Tensor dweight = Tensor::like(x, weight.shape()),
                 dbias = biased ? Tensor::like(x, {weight.size(0)}) : Tensor();
    if (biased)
      kernels(x).matmul_row_sums(raw::transpose(joined), rows, dweight, dbias);
    else
      kernels(x).matmul(raw::transpose(joined), rows, nullptr, 1, dweight);
    const std::vector<Tensor> weights = part_rows(dweight, saved.counts);
    for (std::size_t k = 0; k < outputs; ++k) grads[1 + k] = weights[k];
    if (!biased) return grads;
    const std::vector<Tensor> biases = part_rows(dbias, saved.counts);
    for (std::size_t k = 0; k < outputs; ++k) grads[4 + k] = biases[k];
    return grads;
  }

  Three composed(const std::vector<Tensor>& in) const {
    Three y;
    for (std::size_t k = 0; k < outputs; ++k) {
      const index_t count = in[1 + k].size(0) * heads / in[1].size(0);
      const Tensor each = linear(in[0], in[1 + k], in[4 + k]);
      y[k] = permute(reshape(each, {each.size(0), each.size(1), count, each.size(2) / count}), {0, 2, 1, 3});
    }
    return y;
  }
  static std::array<Tensor, 7> inputs(const Saved& saved) {
    std::array<Tensor, 7> in;
    std::ranges::transform(saved.inputs, in.begin(), [](const SavedTensor& each) { return each.get(); });
    return in;
  }

  // Returns the rows of each projection.
  static std::vector<Tensor> part_rows(const Tensor& joined, const Counts& counts) {
    const index_t dim = joined.size(0) / (counts[0] + counts[1] + counts[2]);
    std::vector<Tensor> parts;
    for (index_t end = 0; const index_t count : counts) {
      const index_t begin = std::exchange(end, end + count * dim);
      parts.push_back(raw::slice(joined, 0, begin, end));
    }
    return parts;
  }

  void check(const Tensor& x, const Three& weights, const Three& biases) const {
    static constexpr std::array<const char*, outputs> names{"query", "key", "value"};
    raw::require_floating(name, "x", x);
    if (x.rank() != 3) fail(name, "x is ", x.shape(), "; [b t c] required");
    const index_t width = weights[0].rank() == 2 ? weights[0].size(0) : 0;
    if (heads < 1 || width < 1 || width % heads != 0)
      fail(name, "query's weight is ", weights[0].shape(), " for ", heads, " heads; a multiple of them required");
    const index_t key_width = weights[1].rank() == 2 ? weights[1].size(0) : 0;
    if (key_width < 1 || width % key_width != 0 || key_width % (width / heads) != 0)
      fail(name, "key's weight is ", weights[1].shape(), " for ", heads, " heads of queries with ", width / heads,
          " dims; as many heads, or a divisor, required");
    for (std::size_t k = 0; k < outputs; ++k) {
      raw::require_alike(name, "x", x, names[k], weights[k]);
      raw::require_shape(name, names[k], weights[k], {k == 0 ? width : key_width, x.size(2)});
      if (biases[k].defined() != biases[0].defined())
        fail(name, "a bias for ", biases[k].defined() ? names[k] : "query", " alone given; all three or none required");
      if (!biases[k].defined()) continue;
      raw::require_alike(name, "x", x, "bias", biases[k]);
      raw::require_shape(name, "bias", biases[k], {k == 0 ? width : key_width});
    }
  }
};

}  // namespace

Three project_heads(const Tensor& x, const Projection& query, const Projection& key, const Projection& value,
    index_t heads, Site site) {
  return apply(ProjectHeads{heads}, site, x, query.weight, key.weight, value.weight, query.bias, key.bias, value.bias);
}

}  // namespace whence

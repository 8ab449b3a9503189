// PaTH: every token between a key and a query applies a reflection, which it chooses, to the key.
//                                                                           Yang et al. 2025, arXiv:2505.16381
//   H_t  = I - beta_t w_t w_t',  |w_t| = 1,  beta_t = 2 sigmoid(u_h.x_t + b_h)       1 forgets w_t, 2 is a mirror
//   S_ij = q_i' H_i H_{i-1} ... H_{j+1} k_j / sqrt(d)                          a key meets later tokens in order
//   w    = unit(silu(convolution(W2 W1 x)))      as in the authors' layer (flash-linear-attention, PaTHAttention):
//          W1 to `rank` numbers, a convolution of each channel over the last tokens, heads of unit length
// The product is computed in blocks of tokens, the last one first: O(T^2 d) work. In a block of tokens a to b
//   U = (I + strictLower(beta W W'))^-1 beta W,       H_b ... H_a = I - W' U                          (UT transform)
// and the rows of U are u_t = beta_t (w_t - sum_{a<=s<t} w_t.w_s u_s). A block's scores are computed before its product
// is applied to the queries. The inverse is computed by halves. Powers of a series would overflow f32 if tokens are
// alike. This inverse and the convolution, which no other scheme has, make this file longer than 120 lines.
// Gradients die: in w where beta is 0; in beta's sigmoid at both ends, one of which is a mirror; along the length
// of W2's result, which unit() removes. With a rotation S would depend on the query's position, so that is refused.
#include <algorithm>
#include <utility>

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/attention/heads.h"
#include "nn/layers/layers.h"
#include "nn/positional/rotation.h"
#include "nn/scheme.h"
#include "tensor/error.h"
#include "tensor/pairs.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// Returns bool [rows columns]: true on the diagonal, and in `before` columns before it.
Tensor up_to_diagonal(index_t rows, index_t columns, index_t before, Device device) {
  return raw::reshape(raw::band_mask(rows, columns, {.before = before}, {}, device), {rows, columns});
}

// Returns x with zeros before and after it along an axis.
Tensor widened(const Tensor& x, int axis, index_t before, index_t behind) {
  const auto zeros = [&](index_t count) {
    Shape shape = x.shape();
    shape[axis] = count;
    return Tensor::zeros(shape, x.dtype(), x.device());
  };
  return concat_along(axis, {zeros(before), x, zeros(behind)});
}

// Returns (I + L)^-1 of a strictly lower L [... n n]: that of [A 0; B D] is [A^-1 0; -D^-1 B A^-1 D^-1].
Tensor inverse(const Tensor& lower) {
  const index_t n = lower.size(-1), half = n / 2;
  if (n <= 4) {  // I - L + L^2 - L^3: all later powers are 0
    const Tensor one =
        masked(Tensor::ones({n, n}, lower.dtype(), lower.device()), up_to_diagonal(n, n, 0, lower.device()));
    return matmul(one - lower, matmul(lower, lower) + one);
  }
  const Tensor above = slice(lower, -2, 0, half), below = slice(lower, -2, half, n);
  const Tensor a = inverse(slice(above, -1, 0, half)), d = inverse(slice(below, -1, half, n));
  const Tensor b = matmul(matmul(d, slice(below, -1, 0, half)), a, -1);
  return concat_along(-2, {widened(a, -1, 0, n - half), concat_along(-1, {b, d})});
}

class Path final : public PositionalScheme, public ScoresPairs {
 public:
  explicit Path(const SchemeArguments& arguments)
      : key_heads_(arguments.sizes().key_heads()),
        width_(key_heads_ * arguments.sizes().head_dim()),
        taps_(arguments.integer("convolution")),
        down_(arguments.sizes().dim, arguments.integer("rank"), false),
        up_(arguments.integer("rank"), width_, false),
        beta_(arguments.sizes().dim, key_heads_) {
    child("down", down_), child("up", up_), child("beta", beta_);
    if (taps_) convolution_ = param("convolution", {width_, taps_}, Init::fan_in(taps_));
  }

  Claims claims() const override {
    return {
        .causal_only = true, .shift_invariant = true, .uses_positions = false, .reads_x = true, .by_key_head = true};
  }
  void check_company(const Stages& stages) const override {
    if (rotations(stages) == 0) return;
    throw InputError("path: given with a scheme that rotates; scores would depend on the query's position, because ",
        "rotations and reflections do not commute; leave one of them out");
  }

  // [b h i j]
  Tensor scores(const AttendContext& context) const override {
    const Tensor& x = layer_input("path", context);
    const DType dtype = compute_dtype(context.dtype());
    const Tensor query = cast(context.query, dtype), key = cast(context.key, dtype);     // [b h i d], [b g j d]
    const Tensor w = probe("w", directions(x, context, dtype));                          // [b g j d]
    const Tensor beta = probe("beta", transpose(sigmoid(cast(beta_(x), dtype)) * 2.0));  // [b g j]
    const index_t first = context.first_row, rows = query.size(2), keys = key.size(2);
    const index_t block = std::clamp<index_t>(keys, 1, 64), blocks = std::max<index_t>((keys + block - 1) / block, 1);
    const auto in_blocks = [&](const Tensor& all) {  // [b g j d] -> [b g n c d]
      return reshape(widened(all, 2, 0, blocks * block - keys), {all.size(0), all.size(1), blocks, block, all.size(3)});
    };
    const Tensor met = up_to_diagonal(first + rows, block, Band::any, context.device),
                 earlier =
                     raw::reshape(raw::band_mask(block, block, {.first_row = -1}, {}, context.device), {block, block});
    const Tensor k = in_blocks(key), ws = in_blocks(w), bw = in_blocks(unsqueeze(beta, 3) * w);  // [b g n c d]
    const Tensor solved = inverse(masked(matmul(bw, transpose(ws)), earlier));                   // [b g n c c]
    const Tensor u =
        probe("u", slice(reshape(matmul(solved, bw), {w.size(0), key_heads_, blocks * block, w.size(3)}), 2, 0, keys));
    const Tensor us = in_blocks(u), within = matmul(solved, masked(matmul(bw, transpose(k)), earlier));  // [b g n c c]
    std::vector<Tensor> columns;
    Tensor reflected = slice(query, 2, rows, rows);  // queries from block n on, after the reflections of later blocks
    for (index_t n = blocks - 1, reached = rows; n >= 0; --n) {
      const index_t begin = std::clamp<index_t>(n * block - first, 0, rows);
      const index_t since = std::max<index_t>(first - n * block, 0);  // tokens of the block before the first query
      reflected = concat_along(2, {slice(query, 2, begin, std::exchange(reached, begin)), reflected});
      const Tensor along = masked(matmul_by_group(reflected, transpose(select(ws, 2, n))),
          slice(met, 0, since, since + rows - begin));  // q.w of the tokens met, [b h i c]
      const Tensor column =
          matmul_by_group(reflected, transpose(select(k, 2, n))) - matmul_by_group(along, select(within, 2, n));
      columns.insert(columns.begin(), widened(column, 2, begin, 0));
      reflected = reflected - matmul_by_group(along, select(us, 2, n));
    }
    return cast(slice(concat_along(3, columns), 3, 0, keys) * context.scale, context.query.dtype());
  }

 private:
  // Returns w, [b g j d].
  Tensor directions(const Tensor& x, const AttendContext& context, DType dtype) const {
    // Padding is 0, so the convolution reads nothing before the first token.
    Tensor w = context.without_padding(up_(down_(x)), 1);  // [b j c]
    if (taps_) {
      const Tensor before = widened(w, 1, taps_ - 1, 0);
      for (index_t tap = 0; tap < taps_; ++tap) {
        const Tensor term = slice(before, 1, tap, tap + x.size(1)) * select(convolution_, 1, tap);
        w = tap ? w + term : term;
      }
      w = silu(w);
    }
    const Tensor of_heads = by_head(cast(w, dtype), key_heads_);
    return of_heads / sqrt(sum(square(of_heads), {3}, true) + 1e-6);
  }

  index_t key_heads_, width_, taps_;  // width of w, over all heads
  Linear down_, up_, beta_;           // [r c], [width r], [g c] and [g]
  Tensor convolution_;                // [width taps], the last tap for the token itself
};

const RegisterScheme registered{{.name = "path",
    .title = "PaTH: products of reflections along the way",
    .paper = "Yang et al. 2025, arXiv:2505.16381",
    .equation = "S_ij = q_i' H_i ... H_{j+1} k_j / sqrt(d),  H_t = I - beta_t w_t w_t',  beta, w made of x_t",
    .options = {option::integer("rank", 32, {1, 65536}, "width between the two maps that give w"),
        option::integer("convolution", 3, {0, 63}, "tokens that w depends on; 0: its own token, without silu")},
    .knob = "beta",
    .probes = {{"w", "b h t d", "the direction along which token t reflects", "w_t, of unit length  (PaTH)"},
        {"beta", "b h t", "strength of the reflection: 1 forgets the direction, 2 mirrors it",
            "beta_t = 2 sigmoid(u.x_t + b)  (PaTH)", ProbeInfo::sequential},
        {"u", "b h t d", "the vector that the product of a block subtracts along w_t",
            "u_t = beta_t (w_t - sum_{s<t} w_t.w_s u_s), s in the block of 64 of t  (PaTH)"}},
    .variants = {"path(rank=2)", "path(rank=3, convolution=0)", "path + forgetting"},
    .make = make_scheme<Path>}};

}  // namespace
}  // namespace whence

// The common part of the tiled ops: attention by programs (tiled_attention.cpp) and the head mix (tiled_mix.cpp).
//   backward: dv_j = sum_i P_ij do_i,  dA_ij = P_ij (do_i.v_j - o_i.do_i),  and each program sums dA to its operands.
// Saved: the operands, the output and two numbers per row, its largest logit m and 1 / sum_j e^{A_ij - m}. They are not
// merged into one logarithm. Its rounding would affect all keys of a row alike, and so any sum over keys.
#pragma once

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/ops/heads_in_rows.h"
#include "autograd/tiled/tiled_ops.h"
#include "tensor/pairs.h"
#include "tensor/raw.h"
#include "tensor/tiles/gpu_programs.h"
#include "tensor/tiles/operands.h"

namespace whence::tiled {

using At = TiledCall;

// Returns x in a layout that kernels read: operands by rows need only contiguous rows, others are small and made
// contiguous.
inline Tensor readable(const OperandInfo& info, const Tensor& x) {
  if (!x.defined()) return x;
  return info.by_rows && (x.size(-1) == 1 || x.strides()[-1] == 1) ? x : raw::contiguous(x);
}
// Returns an empty [b h t c] in the layout [b t h c]: the heads of a token together, as the layers around attention
// use.
inline Tensor by_token(const Shape& shape, DType dtype, Device device) {
  return raw::permute(Tensor::empty({shape[0], shape[2], shape[1], shape[3]}, dtype, device), {0, 2, 1, 3});
}
inline Tensor gradient_like(const OperandInfo& info, const Tensor& x) {
  const std::string_view axes = info.axes;
  const bool of_tokens =
      (axes.starts_with("b h") || axes.starts_with("b g")) && (axes.ends_with('d') || axes.ends_with('c'));
  return of_tokens && !x.is_contiguous() ? by_token(x.shape(), x.dtype(), x.device()) : Tensor::like(x);
}
// Returns gradients in rows of one product, if the heads are views of such rows: their backward reads that layout.
inline ThreeHeads gradients_in_rows(const ThreeHeads& x) {
  const Tensor rows = rows_of_heads(x);
  if (!rows.defined()) return {};
  return heads_in_rows(Tensor::like(rows), x[0].size(0), x[0].size(2), {x[0].size(1), x[1].size(1), x[2].size(1)});
}

inline Tensor output_of(const At& at, const Tensor& y) { return raw::slice(y, 3, 0, y.size(3) - at.bins); }
inline Tensor bins_of(const At& at, const Tensor& y) {
  return at.bins ? raw::slice(y, 3, y.size(3) - at.bins, y.size(3)) : Tensor();
}

template <bool mixes> struct Op {
  static constexpr const char* name = mixes ? "tiled_mix" : "tiled_attention";
  static constexpr bool once = true;
  static constexpr std::size_t count = At::operand_count;
  At at;
  struct Saved {
    std::array<SavedTensor, count> operands;
    std::array<SavedTensor, 4> facts;  // are not inputs, but must not change before backward either
    SavedTensor y, norms;
  };

  // y [b h i c+bins]: the output, followed by the sums by distance
  template <class... In> Tensor forward(Saved& saved, const In&... in) const {
    At::Operands x{in...};
    for (std::size_t k = 0; k < count; ++k) {
      const Tensor given = x[k];
      x[k] = readable(At::info[k], given);
      if (x[k].defined()) saved.operands[k].as(x[k], given);
    }
    const Tensor& query = x[At::query];
    Shape shape = query.shape();
    shape[3] = x[At::value].size(3) + at.bins;
    const Tensor y = by_token(shape, query.dtype(), query.device());
    const Tensor norms = Tensor::empty({shape[0], shape[1], shape[2], 2}, compute_dtype(query.dtype()), query.device());
    if (y.numel() > 0) at.forward(x, output_of(at, y), bins_of(at, y), norms);
    const std::array facts{at.present, at.query_step, at.key_step, at.bin_of};
    for (std::size_t k = 0; k < facts.size(); ++k)
      if (facts[k].defined()) saved.facts[k] = facts[k];
    saved.y.output(y);
    saved.norms = norms;
    return y;
  }

  Grads<count> backward(const Saved& saved, const Tensor& given, Needs<count> needs) const {
    if (at.row.defined()) fail(name, "a first row known only to the device given to backward; a number required");
    for (const SavedTensor& fact : saved.facts)
      if (fact.defined()) static_cast<void>(fact.get());
    At::Operands x, d;
    const Tensor y = saved.y.get(), dy = given.strides()[-1] == 1 ? given : raw::contiguous(given);
    Grads<count> result;
    for (std::size_t k = 0; k < count; ++k)
      if (saved.operands[k].defined()) x[k] = saved.operands[k].get();
    ThreeHeads in_rows;
    if (needs[At::query] && needs[At::key] && needs[At::value] && y.numel() > 0)
      in_rows = gradients_in_rows({x[At::query], x[At::key], x[At::value]});
    for (std::size_t k = 0; k < count; ++k) {
      if (!x[k].defined() || !needs[k]) continue;
      result[k] = d[k] = k < in_rows.size() && in_rows[k].defined() ? in_rows[k]
                         : y.numel() > 0                            ? gradient_like(At::info[k], x[k])
                                         : Tensor::zeros(x[k].shape(), x[k].dtype(), x[k].device());
    }
    if (y.numel() > 0)
      at.backward(x, output_of(at, y), bins_of(at, y), saved.norms.get(), output_of(at, dy), bins_of(at, dy), d);
    return result;
  }
};

// Throws Error if a fact does not fit the operands: kernels use facts as indices.
inline void check_facts(const At& at, const Tensor& query, Extents& of) {
  const char* const op = at.name();
  const struct {
    const char *name, *axes;
    const Tensor& x;
    DType dtype;
  } facts[] = {{"present", "b j", at.present, DType::boolean}, {"query_step", "1|b i", at.query_step, DType::i64},
      {"key_step", "1|b j", at.key_step, DType::i64}, {"bin_of", "n", at.bin_of, DType::i64}};
  for (const auto& [name, axes, x, dtype] : facts) {
    if (!x.defined()) continue;
    if (x.dtype() != dtype || !x.is_contiguous())
      fail(op, name, " is ", x.dtype(), " ", x.shape(), "; contiguous ", dtype, " required");
    raw::require_same_device(op, "query", query, name, x);
    of.fit(op, name, x, axes);
  }
  if (at.query_step.defined() != at.key_step.defined())
    fail(op, at.query_step.defined() ? "query_step" : "key_step", " given alone; steps of both, or neither, required");
  const index_t most = Band::any, first = at.first_row;
  if (first < 0 || first > most || (at.causal && first > of['j'] - of['i']))
    fail(op, "first_row ", first, " given to ", of['i'], " queries and ", of['j'],
        " keys; 0 or more, and under a causal mask a key for each query, required");
  if (at.window < 0 || at.lowest < -most || at.lowest > most)
    fail(op, "window ", at.window, " and lowest ", at.lowest,
        " given; a window of 0 or more and steps below 2^40 required");
  if (!(at.dropout >= 0 && at.dropout < 1)) fail(op, "dropout ", at.dropout, " given; a number in [0, 1) required");
  const Shape pairs{of['b'], of['h'], at.total_rows, of['j']};
  if (at.dropout > 0 && (at.total_rows < first + of['i'] || countable(pairs) < 0))
    fail(op, "dropout with ", at.total_rows, " total_rows given; ", first + of['i'], " or more required");
  if (at.bin_of.defined() != (at.bins > 0) || at.bins < 0)
    fail(op, "bins ", at.bins, " given ", at.bin_of.defined() ? "with" : "without",
        " bin_of; both, or neither, required");
}

// Error if operands or facts are missing or do not go together, dtypes differ, or shapes do not fit.
inline Extents check(const At& at, const At::Operands& x, const Extents& known = {}) {
  for (const std::size_t k : {At::query, At::key, At::value})
    if (!x[k].defined() || x[k].rank() != 4)
      fail(at.name(), At::info[k].name, " is ", x[k].defined() ? to_text(x[k].shape()) : "undefined",
          "; [b h t d] required");
  if (const std::string refusal = tiled_refusal(at, x); !refusal.empty()) fail(at.name(), refusal);
  const Tensor& q = x[At::query];
  for (std::size_t k = 0; k < x.size(); ++k) {
    if (!x[k].defined()) continue;
    raw::require_same_device(at.name(), At::info[At::query].name, q, At::info[k].name, x[k]);
    if (At::info[k].by_rows || x[k].dtype() != compute_dtype(q.dtype()))  // tables may have the precision of sums
      raw::require_same_dtype(at.name(), At::info[At::query].name, q, At::info[k].name, x[k]);
  }
  if (!is_floating(q.dtype())) wrong_dtype(at.name(), q.dtype(), "a floating dtype");
  Extents of = extents_of(at.name(), At::info, x, known);
  if (of['h'] > 0 && (of['g'] == 0 || of['h'] % of['g'] != 0))
    fail(at.name(), "key is ", x[At::key].shape(), ", query is ", q.shape(),
        "; a divisor of the query's heads required");
  check_facts(at, q, of);
  if (of['n'] == 0) fail(at.name(), "a table of no distances given; one row or more required");
  return of;
}

// Returns y [b h i c+bins] of operands that `check_all` accepts. On the CPU 16-bit numbers are widened, and the result
// is rounded once.
template <bool mixes, class Check> Tensor run(const At& at, At::Operands x, Site site, const Check& check_all) {
  const DType given = x[0].defined() ? x[0].dtype() : DType::f32;
  const bool widen = is_floating(given) && size_of(given) == 2 && !(x[0].defined() && x[0].device().is_gpu());
  for (Tensor& operand : x)
    if (widen && operand.defined()) operand = cast(operand, DType::f32, site);
  check_all(at, x);
  if (x[At::query].device().is_gpu())
    if (const std::string refusal = gpu_refusal(at, x); !refusal.empty()) fail(at.name(), refusal);
  const Tensor y = std::apply([&](const auto&... in) { return apply(Op<mixes>{at}, site, in...); }, x);
  return widen ? cast(y, given, site) : y;
}

}  // namespace whence::tiled

// Attention in tiles, and the head mix. tensor/tiled_call.h has the equations, tensor/cpu/tiles/ the programs.
//   backward: dv_j = sum_i P_ij do_i,  dA_ij = P_ij (do_i.v_j - o_i.do_i),  and each program sums dA to its operands.
// Saved: the operands, the output and two numbers per row, its largest logit m and 1 / sum_j e^{A_ij - m}. They are not
// merged into one logarithm. Its rounding would affect all keys of a row alike, and so any sum over keys.
#include "autograd/tiled/tiled_ops.h"

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/ops/heads_in_rows.h"
#include "autograd/ops/index.h"
#include "tensor/pairs.h"
#include "tensor/raw.h"
#include "tensor/tiles/gpu_programs.h"
#include "tensor/tiles/operands.h"

namespace whence {
namespace {

using At = TiledCall;

// Returns x in a layout that kernels read: operands by rows need only contiguous rows, others are small and made
// contiguous.
Tensor readable(const OperandInfo& info, const Tensor& x) {
  if (!x.defined()) return x;
  return info.by_rows && (x.size(-1) == 1 || x.strides()[-1] == 1) ? x : raw::contiguous(x);
}
// Returns an empty [b h t c] in the layout [b t h c]: the heads of a token together, as the layers around attention
// use.
Tensor by_token(const Shape& shape, DType dtype, Device device) {
  return raw::permute(Tensor::empty({shape[0], shape[2], shape[1], shape[3]}, dtype, device), {0, 2, 1, 3});
}
Tensor gradient_like(const OperandInfo& info, const Tensor& x) {
  const std::string_view axes = info.axes;
  const bool of_tokens =
      (axes.starts_with("b h") || axes.starts_with("b g")) && (axes.ends_with('d') || axes.ends_with('c'));
  return of_tokens && !x.is_contiguous() ? by_token(x.shape(), x.dtype(), x.device()) : Tensor::like(x);
}
// Returns gradients in rows of one product, if the heads are views of such rows: their backward reads that layout.
ThreeHeads gradients_in_rows(const ThreeHeads& x) {
  const Tensor rows = rows_of_heads(x);
  if (!rows.defined()) return {};
  return heads_in_rows(Tensor::like(rows), x[0].size(0), x[0].size(2), {x[0].size(1), x[1].size(1), x[2].size(1)});
}

Tensor output_of(const At& at, const Tensor& y) { return raw::slice(y, 3, 0, y.size(3) - at.bins); }
Tensor bins_of(const At& at, const Tensor& y) {
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
void check_facts(const At& at, const Tensor& query, Extents& of) {
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
Extents check_operands(const At& at, const At::Operands& x, const Extents& known = {}) {
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

void check_attention(const At& at, const At::Operands& x) {
  const Extents of = check_operands(at, x);
  if (x[At::relative_query].defined() && x[At::query].device().is_gpu() && !(at.relative_scale > 0))
    fail(at.name(), "relative_scale ", at.relative_scale, " given to tiles on a GPU; more than 0 required");
  for (const std::size_t k : {At::position_logits, At::position_keys})
    if (x[k].defined() && of['p'] == 0)
      fail(at.name(), At::info[k].name, " is ", x[k].shape(), "; a table of one row or more required");
}

void check_mix(const At& at, const At::Operands& x) {
  Extents known;
  known['e'] = at.left + 1;
  if (const Tensor& query = x[At::query]; query.defined() && query.rank() == 4)
    known['x'] = query.size(1) * (x[At::piece_begins].defined() ? 2 : 1);
  const index_t kernel = check_operands(at, x, known)['k'];
  for (const std::size_t k : {At::mix_input, At::mix_table, At::mix_output})
    if (!x[k].defined()) fail(at.name(), At::info[k].name, " is undefined; ", At::info[k].axes, " required");
  if (at.left + at.right != kernel - 1 || at.right > at.left || at.right < 0)
    fail(at.name(), kernel, " taps with ", at.left, " on the left and ", at.right,
        " on the right given; kernel - 1 together, and no more on the right than on the left, required");
}

// Returns y [b h i c+bins]. On the CPU 16-bit numbers are widened, and the result is rounded once.
template <bool mixes> Tensor run(At at, At::Operands x, Site site) {
  at.mixes = mixes;
  const DType given = x[0].defined() ? x[0].dtype() : DType::f32;
  const bool widen = is_floating(given) && size_of(given) == 2 && !(x[0].defined() && x[0].device().is_gpu());
  for (Tensor& operand : x)
    if (widen && operand.defined()) operand = cast(operand, DType::f32, site);
  (mixes ? check_mix : check_attention)(at, x);
  if (x[At::query].device().is_gpu())
    if (const std::string refusal = gpu_refusal(at, x); !refusal.empty()) fail(at.name(), refusal);
  const Tensor y = std::apply([&](const auto&... in) { return apply(Op<mixes>{at}, site, in...); }, x);
  return widen ? cast(y, given, site) : y;
}

}  // namespace

// Decides alone which operands go together in tiles. The ops call it, and executors that have another way.
std::string tiled_refusal(const TiledCall& at, const TiledCall::Operands& x) {
  const auto given = [&](std::size_t k) { return x[k].defined(); };
  for (std::size_t k = 0; k < x.size(); ++k)
    if (given(k) && !(At::info[k].ops & at.op()))
      return to_text(At::info[k].name, " given, which is not read here; undefined required");
  for (const std::size_t k : {At::relative_query, At::gate_query})  // a rotation makes the scores' queries wider
    if (given(k) && x[k].size(-1) != x[At::query].size(-1))
      return to_text(
          At::info[k].name, " is ", x[k].shape(), ", query is ", x[At::query].shape(), "; one width required");

  constexpr std::pair<std::size_t, std::size_t> together[] = {{At::relative_query, At::relative_keys},
      {At::fade_query, At::fade_key}, {At::gate_query, At::gate_key}, {At::piece_begins, At::piece_distance},
      {At::piece_begins, At::piece_row}, {At::piece_begins, At::piece_slopes}, {At::piece_begins, At::piece_offsets}};
  for (const auto& [a, b] : together)
    if (given(a) != given(b))
      return to_text(
          At::info[given(a) ? a : b].name, " given without ", At::info[given(a) ? b : a].name, "; both required");
  if (at.row.defined() && x[At::query].device().is_cpu())
    return "a first row known only to the device given on the CPU; a number required";
  if (at.mixes) {
    if (at.query_step.defined()) return "steps given with a head mix; distances first_row + i - j required";
    if (at.bins > 0 || at.stick)
      return to_text(at.stick ? "a stick to break" : "bins", " given with a head mix; a softmax alone required");
    const bool known = given(At::mix_input) && x[At::mix_input].rank() == 3;
    if (known && given(At::piece_slopes) && x[At::mix_input].size(1) == x[At::query].size(1))
      return "piece_slopes given with a head mix of the scores alone; channels for pieces required, or no pieces";
    if (known && at.window > 0 && x[At::mix_input].size(2) > 1)
      return to_text(x[At::mix_input].size(2),
          " taps in a window given; one tap required: keys next to the window's edge differ for each row");
    return {};
  }
  const char* scan = nullptr;
  for (const std::size_t k : {At::position_logits, At::position_keys, At::position_slopes}) {
    if (given(k) && scan) return to_text(At::info[k].name, " given with ", scan, "; one of them required");
    if (given(k)) scan = At::info[k].name;
  }
  if (given(At::gate_query) && !scan)
    return "gate_query given without sums of gates; position_logits, position_keys or position_slopes required";
  if (given(At::relative_query) && at.query_step.defined())
    return "relative_query with steps given; distances first_row + i - j required";
  for (const std::size_t k : {At::column_rest, At::column_slope})
    if (given(k) && !given(At::column_term))
      return to_text(At::info[k].name, " given without column_term, to which it belongs; both required");
  if (given(At::column_term) && given(At::sink))  // column terms are known up to a number for each row
    return "column_term given with a sink, which depends on shifts of rows; one of them required";
  if (!at.stick) return {};
  if (!at.causal) return "a stick to break without a causal mask given; causal required";
  for (std::size_t k = At::value + 1; k < x.size(); ++k)
    if (given(k)) return to_text(At::info[k].name, " given with a stick to break; the scores alone required");
  return at.bins > 0 ? "bins given with a stick to break; the scores alone required" : "";
}

TiledResult tiled_attention(const TiledCall& given, const TiledCall::Operands& operands, Site site) {
  const CallSite place(site);
  At at = given;
  if (at.bin_of.defined()) at.bin_of = detail::checked_index(Op<false>::name, "bin_of", at.bin_of, at.bins);
  const Tensor y = run<false>(at, operands, site);
  const index_t width = operands[At::value].size(3);
  if (at.bins == 0) return {y, {}};
  return {slice(y, 3, 0, width, 1, site), slice(y, 3, width, width + at.bins, 1, site)};
}

Tensor tiled_mix(const TiledCall& at, const TiledCall::Operands& operands, Site site) {
  const CallSite place(site);
  return run<true>(at, operands, site);
}

}  // namespace whence

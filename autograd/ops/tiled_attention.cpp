// Attention in tiles: tensor/tiled_attention.h has the equations, tensor/cpu/tiles/ the programs.
//   backward: dv_j = sum_i P_ij do_i,  dA_ij = P_ij (do_i.v_j - o_i.do_i),  and each program sums dA to its operands.
// Kept for it: the operands, the output and one number per row, log sum_j e^{A_ij}.
#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "tensor/operands.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using At = TiledAttention;
constexpr std::size_t count = At::operand_count;

Tensor readable(std::size_t k, const Tensor& x) {
  if (!x.defined()) return x;
  return At::info[k].by_rows && (x.size(-1) == 1 || x.strides()[-1] == 1) ? x : raw::contiguous(x);
}

// [b h t c] that lies as [b t h c]: heads of a token side by side, as the layers around attention have them.
Tensor by_token(index_t b, index_t h, index_t t, index_t c, DType dtype, Device device) {
  return raw::permute(Tensor::empty({b, t, h, c}, dtype, device), {0, 2, 1, 3});
}
Tensor gradient_like(std::size_t k, const Tensor& x) {
  const std::string_view axes = At::info[k].axes;
  const bool of_tokens = axes.starts_with("b h") && (axes.ends_with('d') || axes.ends_with('c'));
  return of_tokens ? by_token(x.size(0), x.size(1), x.size(2), x.size(3), x.dtype(), x.device())
                   : Tensor::empty(x.shape(), x.dtype(), x.device());
}

struct Tiled {
  static constexpr const char* name = "tiled_attention";
  static constexpr bool once = true;
  At at;
  struct Saved {
    std::array<SavedTensor, count> operands;
    SavedTensor y, log_sum;
  };

  // y [b h i d+bins]: the output, and beside it the sums by distance
  template <class... In> Tensor forward(Saved& saved, const In&... in) const {
    At::Operands x{in...};
    for (std::size_t k = 0; k < count; ++k) {
      x[k] = readable(k, x[k]);
      if (x[k].defined()) saved.operands[k] = x[k];
    }
    const Tensor &query = x[At::query], &value = x[At::value];
    const index_t b = query.size(0), h = query.size(1), i = query.size(2);
    const Tensor y = by_token(b, h, i, value.size(3) + at.bins, query.dtype(), query.device());
    const Tensor log_sum = Tensor::empty({b, h, i}, query.dtype(), query.device());
    if (y.numel() > 0) kernels(query.device()).attention(at, x, output(y), bins(y), log_sum);
    saved.y.output(y);
    saved.log_sum = log_sum;
    return y;
  }

  Grads<count> backward(const Saved& saved, const Tensor& given, Needs<count> needs) const {
    const Tensor y = saved.y.get(), dy = given.strides()[-1] == 1 ? given : raw::contiguous(given);
    At::Operands x, d;
    Grads<count> result;
    for (std::size_t k = 0; k < count; ++k) {
      if (!saved.operands[k].defined()) continue;
      x[k] = saved.operands[k].get();
      if (needs[k])
        result[k] = d[k] =
            y.numel() > 0 ? gradient_like(k, x[k]) : Tensor::zeros(x[k].shape(), x[k].dtype(), x[k].device());
    }
    if (y.numel() > 0)
      kernels(y.device()).attention_backward(at, x, output(y), bins(y), saved.log_sum.get(), output(dy), bins(dy), d);
    return result;
  }

  Tensor output(const Tensor& y) const { return raw::slice(y, 3, 0, y.size(3) - at.bins); }
  Tensor bins(const Tensor& y) const { return at.bins ? raw::slice(y, 3, y.size(3) - at.bins, y.size(3)) : Tensor(); }
};

// ---- what is asked of shapes ----

void check(const At& at, const At::Operands& x) {
  const auto name = [](std::size_t k) { return At::info[k].name; };
  for (const std::size_t k : {At::query, At::key, At::value})
    if (!x[k].defined() || x[k].rank() != 4)
      fail(Tiled::name, name(k), " is ", x[k].defined() ? to_text(x[k].shape()) : "undefined", "; [b h t d] required");
  const Tensor& q = x[At::query];
  for (std::size_t k = 0; k < count; ++k)
    if (x[k].defined()) raw::require_alike(Tiled::name, name(At::query), q, name(k), x[k]);
  if (q.dtype() != DType::f32 && q.dtype() != DType::f64 && q.dtype() != DType::dual)
    wrong_dtype(Tiled::name, q.dtype(), "a floating dtype");
  Extents known;
  if (at.bins > 0) known['n'] = at.bin_of.numel();
  if (x[At::mix_input].defined()) known['e'] = at.mix.left + 1;
  const Extents of = extents_of(Tiled::name, At::info, x, known);
  if (of['n'] == 0) fail(Tiled::name, "a table of no distances given; one row or more required");
  for (const std::size_t k : {At::position_logits, At::position_keys})
    if (x[k].defined() && of['p'] == 0)
      fail(Tiled::name, name(k), " is ", x[k].shape(), "; a table of one row or more required");
  if (const index_t kernel = of['k'];
      kernel >= 0 && (at.mix.left + at.mix.right != kernel - 1 || at.mix.right > at.mix.left))
    fail(Tiled::name, "a mix of ", kernel, " taps with ", at.mix.left, " on the left and ", at.mix.right,
        " on the right given; kernel - 1 together, and no more on the right than on the left, required");
  if (const std::string apart = tiled_refusal(at, x); !apart.empty()) fail(Tiled::name, apart);
}

template <std::size_t... K>
Tensor apply_all(const At& at, const At::Operands& x, Site site, std::index_sequence<K...>) {
  return apply(Tiled{at}, site, x[K]...);
}

// ---- samples: each program alone, off every size of a tile, and some of them together ----

using Inputs = std::vector<Tensor>;

struct Case {
  std::string name;
  At at;
  std::vector<std::size_t> operands;  // what the inputs are
  Inputs inputs;
  bool kinked = false;
};

Case of(std::string name, index_t b, index_t h, index_t i, index_t j, index_t d) {
  Case c{std::move(name), {}, {At::query, At::key, At::value},
      {draw::normal({b, h, i, d}), draw::normal({b, h, j, d}), draw::normal({b, h, j, d})}};
  c.at.scale = 0.6;
  c.at.first_row = j - i;
  c.at.total_rows = j;
  return c;
}
Case with(Case c, std::size_t operand, Tensor x) {
  c.operands.push_back(operand);
  c.inputs.push_back(std::move(x));
  return c;
}
Case with_mix(Case c, index_t width, index_t kernel, index_t right, index_t heads, index_t keys) {
  c.at.mix.left = kernel - 1 - right, c.at.mix.right = right, c.at.mix.lowest = -right;
  c = with(std::move(c), At::mix_input, draw::normal({width, heads, kernel}));
  c = with(std::move(c), At::mix_table, draw::normal({kernel - right, width, keys + right}));
  return with(std::move(c), At::mix_output, draw::normal({heads, width, kernel}));
}

std::vector<Case> cases() {
  std::vector<Case> list;
  list.push_back(of("plain", 1, 2, 5, 5, 3));
  list.push_back(of("one token", 2, 1, 1, 1, 2));
  list.push_back(of("later rows", 1, 1, 2, 7, 4));
  list.push_back(of("no rows", 1, 1, 0, 0, 2));
  list.push_back(of("not causal, two tiles of keys", 1, 1, 3, 70, 2));
  list.back().at.causal = false, list.back().at.first_row = 0;
  list.push_back(of("two blocks of queries", 1, 1, 67, 67, 2));
  list.push_back(of("padding", 2, 1, 6, 6, 3));
  list.back().at.present = Tensor::of({0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}, {2, 6}, DType::boolean);
  list.push_back(of("dropout", 1, 2, 6, 6, 3));
  list.back().at.dropout = 0.3, list.back().at.stream = Stream(3, "pattern", 2);
  list.push_back(with(of("by distance", 2, 2, 6, 6, 3), At::distance_table, draw::normal({2, 6})));
  list.push_back(with(of("by drawn distance", 1, 2, 4, 4, 3), At::distance_table, draw::normal({2, 9})));
  list.back().at.query_step = Tensor::of({0, 3, 5, 8}, {1, 4}, DType::i64);
  list.back().at.key_step = list.back().at.query_step;
  list.push_back(with(of("by distance, both sides", 1, 1, 5, 5, 2), At::distance_table, draw::normal({1, 9})));
  list.back().at.causal = false, list.back().at.lowest = -4;
  list.push_back(with(with(of("by row and distance", 2, 2, 5, 5, 3), At::relative_query, draw::normal({2, 2, 5, 3})),
      At::relative_keys, draw::normal({1, 5, 3})));
  list.back().at.relative_scale = 0.7;
  list.push_back(
      with(with(of("by row and distance, each head", 1, 2, 3, 5, 3), At::relative_query, draw::normal({1, 2, 3, 3})),
          At::relative_keys, draw::normal({2, 5, 3})));
  list.push_back(with(of("column", 2, 2, 5, 5, 3), At::column_term, draw::normal({2, 2, 5})));
  list.push_back(with(of("row scan by a table", 2, 2, 7, 7, 3), At::position_logits, draw::normal({2, 2, 7, 3})));
  list.push_back(with(of("row scan by keys of positions", 2, 2, 7, 7, 3), At::position_keys, draw::normal({4, 3})));
  list.back().at.position_scale = 0.8;
  list.push_back(with(of("row scan, never full", 1, 1, 6, 6, 2), At::position_logits, draw::normal({1, 1, 6, 9})));
  list.push_back(with(of("row scan by slopes", 1, 2, 6, 6, 3), At::position_slopes, draw::normal({2})));
  list.push_back(with(with(with(of("row scan, other gates", 1, 2, 6, 6, 3), At::gate_query, draw::normal({1, 2, 6, 3})),
                          At::gate_key, draw::normal({1, 2, 6, 3})),
      At::position_logits, draw::normal({1, 2, 6, 4})));
  list.back().at.gate_scale = 0.5;
  list.push_back(of("bins", 1, 2, 6, 6, 3));
  list.back().at.bins = 3, list.back().at.bin_of = Tensor::of({2, 1, 1, 0, 0, 0}, {6}, DType::i64);
  list.push_back(with_mix(of("head mix", 2, 3, 5, 5, 2), 4, 1, 0, 3, 5));
  list.push_back(with_mix(of("head mix, 3 taps", 1, 2, 7, 7, 2), 3, 3, 1, 2, 7));
  list.back().at.mix.behind = 1;
  list.push_back(with(with_mix(of("head mix, 5 taps, residual", 1, 2, 6, 6, 2), 3, 5, 2, 2, 6), At::distance_table,
      draw::normal({2, 6})));
  list.back().at.mix.remask = true;
  list.push_back(with_mix(of("head mix, taps on the left", 1, 2, 6, 6, 2), 3, 2, 0, 2, 6));
  list.push_back(with_mix(of("head mix, padding and dropout", 2, 2, 6, 6, 2), 3, 3, 1, 2, 6));
  list.back().at.present = Tensor::of({0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 6}, DType::boolean);
  list.back().at.dropout = 0.25, list.back().at.stream = Stream(5, "pattern");
  return list;
}

std::vector<CheckedSample> samples() {
  std::vector<CheckedSample> result;
  for (const Case& c : cases()) {
    result.push_back({c.name, c.kinked, c.inputs, [at = c.at, which = c.operands](const Inputs& inputs) {
                        At::Operands x;
                        for (std::size_t k = 0; k < which.size(); ++k) x[which[k]] = inputs[k];
                        const TiledResult y = tiled_attention(at, x);
                        return y.bin_sums.defined() ? concat_along(3, {y.output, y.bin_sums}) : y.output;
                      }});
  }
  return result;
}

std::vector<BadInput> bad_inputs() {
  const auto call = [](const Shape& q, const Shape& k) {
    At::Operands x;
    x[At::query] = Tensor::zeros(q), x[At::key] = Tensor::zeros(k), x[At::value] = Tensor::zeros(k);
    (void)tiled_attention({}, x);
  };
  return {{"tiled_attention: key is [1,2,4,3]; [1,2,4,5] required, as the other operands are",
              [=] {
                call({1, 2, 4, 5}, {1, 2, 4, 3});
              }},
      {"tiled_attention: query is [4,5]; [b h t d] required", [=] {
         call({4, 5}, {1, 2, 4, 5});
       }}};
}

// softmax(q k' scale) v under a causal mask: sample 0.
Tensor reference(const Inputs& in) {
  const index_t heads = in[0].size(1), t = in[0].size(2), d = in[0].size(3);
  std::vector<double> y;
  for (index_t h = 0; h < heads; ++h) {
    for (index_t i = 0; i < t; ++i) {
      std::vector<double> sums(static_cast<std::size_t>(d), 0);
      double total = 0;
      for (index_t j = 0; j <= i; ++j) {
        double score = 0;
        for (index_t c = 0; c < d; ++c) score += in[0].at({0, h, i, c}) * in[1].at({0, h, j, c});
        const double power = std::exp(0.6 * score);
        total += power;
        for (index_t c = 0; c < d; ++c) sums[static_cast<std::size_t>(c)] += power * in[2].at({0, h, j, c});
      }
      for (const double sum : sums) y.push_back(sum / total);
    }
  }
  return Tensor::of(y, in[0].shape(), DType::f64);
}

const CheckedEntry checked({Tiled::name, true, samples, bad_inputs, reference, true});

}  // namespace

std::string tiled_refusal(const At& at, const At::Operands& x) {
  const bool steps = at.query_step.defined();
  const char* scan = nullptr;
  for (const std::size_t k : {At::position_logits, At::position_keys, At::position_slopes}) {
    if (x[k].defined() && scan) return to_text(At::info[k].name, " given beside ", scan, "; one of them required");
    if (x[k].defined()) scan = At::info[k].name;
  }
  if (x[At::relative_query].defined() && steps)
    return "relative_query with steps given; distances first_row + i - j required";
  if (!x[At::mix_input].defined()) return {};
  for (const std::size_t k :
      {At::relative_query, At::column_term, At::position_logits, At::position_keys, At::position_slopes})
    if (x[k].defined())
      return to_text(At::info[k].name, " given beside a head mix; only tables by distance go with one");
  if (steps || at.bins > 0) return "steps or bins given beside a head mix; distances first_row + i - j required";
  return {};
}

TiledResult tiled_attention(const TiledAttention& at, const TiledAttention::Operands& operands, Site site) {
  const CallSite place(site);
  if (const Tensor& q = operands[At::query]; q.defined() && is_floating(q.dtype()) && size_of(q.dtype()) == 2) {
    At::Operands wide;  // 16-bit numbers are widened, and what is made of them is rounded once
    for (std::size_t k = 0; k < count; ++k)
      if (operands[k].defined()) wide[k] = cast(operands[k], DType::f32, site);
    const TiledResult y = tiled_attention(at, wide, site);
    return {cast(y.output, q.dtype(), site), y.bin_sums.defined() ? cast(y.bin_sums, q.dtype(), site) : y.bin_sums};
  }
  check(at, operands);
  const Tensor y = apply_all(at, operands, site, std::make_index_sequence<count>());
  const index_t width = operands[At::value].size(3);
  if (at.bins == 0) return {y, {}};
  return {slice(y, 3, 0, width, 1, site), slice(y, 3, width, width + at.bins, 1, site)};
}

}  // namespace whence

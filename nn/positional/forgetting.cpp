// The forgetting transformer: each token decides how much of all that came before it is kept.
//                                                                        Lin et al. 2025, arXiv:2503.02130 (FoX)
//   f_t  = sigmoid(w_h.x_t + b_h)                            forget gate of head h                            (Eq. 1)
//   A_ij = S_ij + sum_{l=j+1..i} log f_l                     a key fades by every gate between it and the query (Eq. 3)
// The sum is c_i - c_j with c_t = sum_{l<=t} log f_l: one running sum per head. log f <= 0, and its derivative by the
// gate's input is 1 - f: a gate that is wide open learns nothing, one that is shut still does. No position is read: the
// text decides how far apart two tokens are.
//   gates=pairs:  f_il = sigmoid(q'_i.k'_l / sqrt(d'))       every query has gates of its own, as CoPE's have
//   A_ij = S_ij + sum_{l=j+1..i} log f_il                    (x-transformers, PerRowDataDependentAlibi; no paper)
// Those are a number for each pair, which no program by column makes: they run in strips. One name for both, as one
// equation, is why this file has more than 120 lines.
#include <cmath>

#include "autograd/inspect/probe.h"
#include "autograd/ops.h"
#include "nn/attention/tiles.h"
#include "nn/layers/linear.h"
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence {
namespace {

Tensor log_sigmoid(const Tensor& z) { return softplus(z * -1.0) * -1.0; }

void require_input(const AttendContext& context) {
  if (!context.x.defined())
    fail("forgetting", "no layer input given; x [batch, key, dim] required, as the gates read it");
}

class Forgetting final : public PositionalScheme, public BiasesScores, public RunsInTiles {
 public:
  // b: 0 in the paper, so that at first each token forgets half; larger forgets less.
  explicit Forgetting(const SchemeArguments& arguments)
      : gate_(arguments.sizes().dim, arguments.sizes().heads, true, Init::normal(0, 0.02),
            Init::constant(arguments.number("bias"))) {
    child("gate", gate_);
  }

  Claims claims() const override { return {.causal_only = true, .shift_invariant = true, .uses_positions = false}; }

  // [b h i j]
  Tensor bias(const AttendContext& context) const override {
    const Tensor kept = log_kept(context);
    const Tensor faded = unsqueeze(of_query(kept, context), 3) - unsqueeze(kept, 2);  // c_i - c_j, [b h i j]
    // Above the diagonal the sum is empty: 0, not above 0.
    return probe("bias", cast(clamp_max(faded, 0), context.dtype()));
  }

  bool add_to_tiles(TileTerms& terms, const AttendContext& context) const override {
    return terms.add_column(
        cast(log_kept(context), context.dtype()) * -1.0);  // c_i moves whole rows, which softmax ignores
  }

 private:
  // c, [b h j]
  Tensor log_kept(const AttendContext& context) const {
    require_input(context);
    const DType dtype = compute_dtype(context.dtype());
    Tensor log_gate = transpose(cast(log_sigmoid(gate_(context.x)), dtype));  // log f, [b h j]
    if (context.present.defined())
      log_gate = masked(log_gate, context.on_device(select(context.present, 1, 0)));  // padding forgets nothing
    return probe("log_kept", cumulative_sum(log_gate));
  }
  // c_i, [b h i]
  static Tensor of_query(const Tensor& kept, const AttendContext& context) {
    return slice(kept, 2, context.first_row, context.first_row + context.query.size(2));
  }

  Linear gate_;  // weight [h c], bias [h]
};

class PairForgetting final : public PositionalScheme, public BiasesScores {
 public:
  explicit PairForgetting(const SchemeArguments& arguments)
      : heads_(arguments.sizes().heads),
        query_(arguments.sizes().dim, heads_ * arguments.integer("width"), false),
        key_(arguments.sizes().dim, heads_ * arguments.integer("width"), false) {
    arguments.refuse_if_given("bias", "with gates=pairs, which have none");
    child("gate_query", query_);
    child("gate_key", key_);
  }

  Claims claims() const override { return {.causal_only = true, .shift_invariant = true, .uses_positions = false}; }

  // [b h i j]
  Tensor bias(const AttendContext& context) const override {
    require_input(context);
    const index_t first = context.first_row, keys = context.key.size(2);
    const Tensor query = by_head(query_(slice(context.x, 1, first, first + context.query.size(2))));  // [b h i d']
    const double scale = 1 / std::sqrt(static_cast<double>(query.size(3)));
    const Tensor z = probe("gate_logits", matmul(query, transpose(by_head(key_(context.x))), scale));
    const Tensor log_gates = context.masked(log_sigmoid(cast(z, compute_dtype(context.dtype()))));
    const Tensor kept = reverse_cumulative_sum(log_gates);  // sum_{l=j..i} log f_il, [b h i j]
    const Tensor own = Tensor::zeros({kept.size(0), heads_, kept.size(2), 1}, kept.dtype(), kept.device());
    return probe("bias", cast(concat_along(3, {slice(kept, 3, 1, keys), own}), context.dtype()));  // from j + 1 on
  }

 private:
  // x [b t h d'] -> [b h t d']
  Tensor by_head(const Tensor& x) const {
    return permute(reshape(x, {x.size(0), x.size(1), heads_, -1}), {0, 2, 1, 3});
  }

  index_t heads_;
  Linear query_, key_;  // [h d' c]
};

std::unique_ptr<PositionalScheme> make(const SchemeArguments& arguments) {
  if (arguments.word("gates") == "pairs") return std::make_unique<PairForgetting>(arguments);
  arguments.refuse_if_given("width", "without gates=pairs, whose queries and keys it sizes");
  return std::make_unique<Forgetting>(arguments);
}

const RegisterScheme registered{{.name = "forgetting",
    .aliases = {"fox"},
    .title = "the forgetting transformer's gates",
    .paper = "Lin et al. 2025, arXiv:2503.02130",
    .equation = "A_ij = S_ij + sum_{l=j+1..i} log sigmoid(w_h.x_l + b_h)",
    .options = {option::words("gates", {"tokens", "pairs"}, "a gate of each token, or of each query and token"),
        option::number("bias", 0, {-20, 20}, "of every token's gate at first; larger forgets less"),
        option::integer("width", 8, {1, 4096}, "numbers of the queries and keys that make the gates of pairs")},
    .probes = {{"gate_logits", "b h i j", "how gladly query i leaves open the gate of token j",
                   "q'_i.k'_j / sqrt(d'), with gates=pairs"},
        {"log_kept", "b h t", "how much of the start is still there at token t",
            "c_t = sum_{l<=t} log f_l  (FoX, Eq. 3)"},
        {"bias", "b h i j", "how far key j has faded for query i", "c_i - c_j = sum_{l=j+1..i} log f_l  (FoX, Eq. 3)"}},
    .variants = {"forgetting(bias=2)", "forgetting(gates=pairs, width=3)"},
    .make = make}};

}  // namespace
}  // namespace whence

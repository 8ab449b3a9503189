// The forgetting transformer: each token decides how much of everything before it is kept.
//                                                                        Lin et al. 2025, arXiv:2503.02130 (FoX)
//   f_t  = sigmoid(w_h.x_t + b_h)                            forget gate of head h                            (Eq. 1)
//   A_ij = S_ij + sum_{l=j+1..i} log f_l                     a key fades by every gate between it and the query (Eq. 3)
// The sum is c_i - c_j with c_t = sum_{l<=t} log f_l: one running sum per head. log f <= 0, and its derivative with
// respect to the gate's input is 1 - f: a gate that is wide open learns nothing, a shut one still does. No position is
// read. The text decides the distance between two tokens.
//   gates=pairs:  f_il = sigmoid(q'_i.k'_l / sqrt(d'))       each query has its own gates, as in CoPE
//   A_ij = S_ij + sum_{l=j+1..i} log f_il                    (x-transformers, PerRowDataDependentAlibi; no paper)
// These gates are a number for each pair: tiles compute and sum them, tensor/cpu/tiles/programs/fading.h.
// The caller's mask hides tokens from pairs. A token's gate belongs to no pair, so it counts between j and i even if
// the token is hidden. The gate of a hidden pair does not count.
#include <cmath>

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/attention/heads.h"
#include "nn/attention/tile_terms.h"
#include "nn/layers/layers.h"
#include "nn/positional/later/fading.h"

namespace whence {
namespace {

Tensor log_sigmoid(const Tensor& z) { return softplus(z * -1.0) * -1.0; }

class Forgetting final : public Fading {
 public:
  // b: 0 in the paper, so that initially each token forgets half; a larger b forgets less.
  explicit Forgetting(const SchemeArguments& arguments)
      : gate_(arguments.sizes().dim, arguments.sizes().heads, true, Init::normal(0, 0.02),
            Init::constant(arguments.number("bias"))) {
    child("gate", gate_);
  }

 private:
  Tensor sums(const AttendContext& context) const override {
    const Tensor z = gate_(layer_input("forgetting", context));                               // [b j h]
    const Tensor log_gate = transpose(cast(log_sigmoid(z), compute_dtype(context.dtype())));  // log f, [b h j]
    return probe("log_kept", running_sum(context.without_padding(log_gate, 2), 2));
  }

  Linear gate_;  // weight [h c], bias [h]
};

class PairForgetting final : public PositionalScheme, public BiasesScores, public RunsInTiles {
 public:
  explicit PairForgetting(const SchemeArguments& arguments)
      : heads_(arguments.sizes().heads),
        query_(arguments.sizes().dim, heads_ * arguments.integer("width"), false),
        key_(arguments.sizes().dim, heads_ * arguments.integer("width"), false) {
    arguments.refuse_if_given("bias", "with gates=pairs, which have none");
    child("gate_query", query_);
    child("gate_key", key_);
  }

  Claims claims() const override {
    return {.causal_only = true, .shift_invariant = true, .uses_positions = false, .reads_x = true};
  }

  // [b h i j]
  Tensor bias(const AttendContext& context) const override {
    const index_t keys = context.key.size(2);
    const Tensor z = probe("gate_logits", matmul(gate_queries(context), transpose(gate_keys(context))));
    const Tensor log_gates = context.masked(log_sigmoid(cast(z, compute_dtype(context.dtype()))));
    const Tensor kept = reverse_cumulative_sum(log_gates);  // sum_{l=j..i} log f_il, [b h i j]
    const Tensor own = Tensor::zeros({kept.size(0), heads_, kept.size(2), 1}, kept.dtype(), kept.device());
    return probe("bias", cast(concat_along(3, {slice(kept, 3, 1, keys), own}), context.dtype()));  // from j + 1 on
  }

 private:
  // q' / sqrt(d'), [b h i d']
  Tensor gate_queries(const AttendContext& context) const {
    const Tensor query = by_head(query_(of_queries(layer_input("forgetting", context), 1, context)), heads_);
    return query * (1 / std::sqrt(static_cast<double>(query.size(3))));
  }
  Tensor gate_keys(const AttendContext& context) const {  // [b h j d']
    return by_head(key_(layer_input("forgetting", context)), heads_);
  }

  // ---- The same in tiles: readers may stop here. ----
  void add_to_tiles(TileTerms& terms, const AttendContext& context) const override {
    terms.add(TiledOperands::fade_query, gate_queries(context));
    terms.add(TiledOperands::fade_key, gate_keys(context));
  }
  std::string only_on_cpu() const override { return "gates of pairs"; }

  index_t heads_;
  Linear query_, key_;  // [h d' c]
};

std::unique_ptr<PositionalScheme> make_forgetting(const SchemeArguments& arguments) {
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
        option::number("bias", 0, {-20, 20}, "initial bias of every gate; larger forgets less"),
        option::integer("width", 8, {1, 4096}, "dims of the queries and keys that give the gates of pairs")},
    .knob = "bias",
    .picture = SchemeInfo::distance,
    .probes = {{"gate_logits", "b h i j", "gate of token j for query i, before the sigmoid",
                   "q_i'.k_j' / sqrt(d'), with gates=pairs"},
        {"log_kept", "b h t", "logarithm of the share of the start that is left at token t",
            "c_t = sum_{l<=t} log f_l  (FoX, Eq. 3)"},
        {"bias", "b h i j", "logarithm of the weight that key j has kept for query i",
            "c_i - c_j = sum_{l=j+1..i} log f_l  (FoX, Eq. 3)"}},
    .variants = {"forgetting(bias=2)", "forgetting(gates=pairs, width=3)"},
    .make = make_forgetting}};

}  // namespace
}  // namespace whence

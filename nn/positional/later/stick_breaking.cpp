// Stick-breaking attention: from the query backwards, each key breaks its share off the rest of a stick.
//                                                                          Tan et al. 2024, arXiv:2410.17980
//   beta_ij = sigmoid(A_ij)                                     the share that key j takes of the rest
//   P_ij    = beta_ij prod_{j<l<i} (1 - beta_il),  j < i        the product as a sum of logarithms            (Eq. 1)
//   rest_i  = prod_{l<i} (1 - beta_il) = 1 - sum_j P_ij         rest=nowhere: lost; rest=self: P_ii, given to v_i
// A key hidden by the caller's mask takes nothing. The rest is lost if the mask hides the row's own token.
// It replaces the softmax and a position: of equal keys the nearest takes most. Backward, with G the gradient at P:
//   dA_ij = P_ij G_ij (1 - beta_ij) - beta_ij (rest_i G_ii + sum_{l<j} P_il G_il)
// The first term is the gain of j, the second is its loss to the keys behind it. Gradients die: where beta is 1,
// because A_ij then depends on no other key and its own factor is 0; where beta is 0; and behind keys that took the
// whole stick, because P is 0 there and behind.
#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/attention/tile_terms.h"
#include "nn/scheme.h"

namespace whence {
namespace {

class StickBreaking final : public PositionalScheme, public MakesPattern, public RunsInTiles {
 public:
  explicit StickBreaking(const SchemeArguments& arguments) : rest_to_self_(arguments.word("rest") == "self") {}

  Claims claims() const override { return {.causal_only = true, .shift_invariant = true, .uses_positions = false}; }

  // a:[b h i j]   ->   P:[b h i j]
  Tensor pattern(const Tensor& a, const AttendContext& context) const override {
    Sequence in_front = context;  // keys before the query; a query is none of its own keys
    in_front.causal = true, in_front.first_row -= 1, in_front.window = 0;
    const auto before = [&](const Tensor& x) { return in_front.masked(context.window > 0 ? context.masked(x) : x); };
    const Tensor logits = cast(a, compute_dtype(a.dtype()));
    const Tensor shares = probe("shares", before(sigmoid(logits)));                              // beta, [b h i j]
    const Tensor broken = probe("log_break", before(softplus(logits) * -1.0));                   // log(1 - beta)
    const Tensor left = probe("stick_left", exp(reverse_cumulative_sum(one_key_back(broken))));  // [b h i j]
    const Tensor weights = shares * left;
    if (!rest_to_self_) return cast(weights, a.dtype());
    const Tensor rest = probe("rest", exp(sum(broken, {-1}, true)));  // [b h i 1]
    const Tensor all = expand(rest, logits.shape());
    return cast(weights + (context.masked(all) - before(all)), a.dtype());  // hidden from the keys, but seen by row i
  }

 private:
  // Shifts x by one: each key gets the value of the next one, the last gets 0: [b h i j].
  static Tensor one_key_back(const Tensor& x) {
    const index_t keys = x.size(3);
    if (keys == 0) return x;
    const Tensor last = Tensor::zeros({x.size(0), x.size(1), x.size(2), 1}, x.dtype(), x.device());
    return concat_along(3, {slice(x, 3, 1, keys), last});
  }

  // ---- The same in tiles: readers may stop here. ----
  std::string only_on_cpu() const override { return "a stick to break"; }
  void add_to_tiles(TileTerms& terms, const AttendContext&) const override {
    terms.at.stick = true, terms.at.rest_to_self = rest_to_self_;
  }

  bool rest_to_self_;
};

const RegisterScheme registered{{.name = "stick_breaking",
    .aliases = {"stickbreaking"},
    .title = "stick-breaking attention",
    .paper = "Tan et al. 2024, arXiv:2410.17980",
    .equation = "P_ij = beta_ij prod_{j<l<i} (1 - beta_il),  beta = sigmoid(A),  j < i",
    .options = {option::words("rest", {"nowhere", "self"}, "where the rest of the stick goes: nowhere, or to v_i")},
    .knob = "shares",
    .probes = {{"shares", "b h i j", "the share that key j takes of the rest of the stick",
                   "beta_ij = sigmoid(A_ij), 0 where not j < i  (stick-breaking, Eq. 1)", ProbeInfo::unit},
        {"log_break", "b h i j", "logarithm of the factor by which key j shortens the stick",
            "log(1 - beta_ij) = -softplus(A_ij)  (stick-breaking)"},
        {"stick_left", "b h i j", "the rest of the stick after the keys between j and the query",
            "prod_{j<l<i} (1 - beta_il)  (stick-breaking, Eq. 1)", ProbeInfo::unit},
        {"rest", "b h i o", "the rest that no key took, with rest=self", "prod_{l<i} (1 - beta_il)  (stick-breaking)",
            ProbeInfo::unit}},
    .variants = {"stick_breaking(rest=self)", "stick_breaking + rope", "stick_breaking(rest=self) + alibi"},
    .make = make_scheme<StickBreaking>}};

}  // namespace
}  // namespace whence

// The forgetting transformer: each token decides how much of all that came before it is kept.
//                                                                        Lin et al. 2025, arXiv:2503.02130 (FoX)
//   f_t  = sigmoid(w_h.x_t + b_h)                            forget gate of head h                            (Eq. 1)
//   A_ij = S_ij + sum_{l=j+1..i} log f_l                     a key fades by every gate between it and the query (Eq. 3)
// The sum is c_i - c_j with c_t = sum_{l<=t} log f_l: one running sum per head. log f <= 0, and its derivative by the
// gate's input is 1 - f: a gate that is wide open learns nothing, one that is shut still does. No position is read: the
// text decides how far apart two tokens are.
#include "autograd/inspect/probe.h"
#include "autograd/ops.h"
#include "nn/attention/tiles.h"
#include "nn/layers/linear.h"
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence {
namespace {

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
    if (!context.x.defined())
      fail("forgetting", "no layer input given; x [batch, key, dim] required, as the gates read it");
    const DType dtype = compute_dtype(context.dtype());
    Tensor log_gate = transpose(cast(softplus(gate_(context.x) * -1.0) * -1.0, dtype));  // log f, [b h j]
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

const RegisterScheme registered{{.name = "forgetting",
    .aliases = {"fox"},
    .title = "the forgetting transformer's gates",
    .paper = "Lin et al. 2025, arXiv:2503.02130",
    .equation = "A_ij = S_ij + sum_{l=j+1..i} log sigmoid(w_h.x_l + b_h)",
    .options = {option::number("bias", 0, {-20, 20}, "of every gate at first; larger forgets less")},
    .probes = {{"log_kept", "b h t", "how much of the start is still there at token t",
                   "c_t = sum_{l<=t} log f_l  (FoX, Eq. 3)"},
        {"bias", "b h i j", "how far key j has faded for query i", "c_i - c_j = sum_{l=j+1..i} log f_l  (FoX, Eq. 3)"}},
    .variants = {"forgetting(bias=2)"},
    .make = make_scheme<Forgetting>}};

}  // namespace
}  // namespace whence

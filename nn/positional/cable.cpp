// Context-aware biases: every token takes a step of its own length, and a key lies as far back as the steps from it.
//                                                                            Veisi et al. 2025, arXiv:2503.08067
//   c_t  = sum_{l<=t} softplus(w_h.x_l + b_h)                           how far token t has come, in head h
//   A_ij = S_ij - (c_i - c_j)                                           ALiBi with steps that the text decides
// softplus is what the released code has; as softplus(z) = -log sigmoid(-z), this is `forgetting` with the gates' signs
// the other way round: found apart, the same functions. A step that is nearly 0 learns nearly nothing, d softplus being
// a sigmoid; long ones always learn. No position is read.
#include "autograd/inspect/probe.h"
#include "autograd/ops.h"
#include "nn/attention/tiles.h"
#include "nn/layers/linear.h"
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence {
namespace {

class Cable final : public PositionalScheme, public BiasesScores, public RunsInTiles {
 public:
  explicit Cable(const SchemeArguments& arguments) : step_(arguments.sizes().dim, arguments.sizes().heads) {
    child("step", step_);
  }

  Claims claims() const override { return {.causal_only = true, .shift_invariant = true, .uses_positions = false}; }

  // [b h i j]
  Tensor bias(const AttendContext& context) const override {
    const Tensor c = places(context);
    const Tensor query = slice(c, 2, context.first_row, context.first_row + context.query.size(2));
    const Tensor back = unsqueeze(c, 2) - unsqueeze(query, 3);        // c_j - c_i, [b h i j]
    return probe("bias", cast(clamp_max(back, 0), context.dtype()));  // masked keys are no nearer than the query
  }
  bool add_to_tiles(TileTerms& terms, const AttendContext& context) const override {
    return terms.add_column(cast(places(context), context.dtype()));  // c_i moves whole rows, which softmax ignores
  }

 private:
  // c, [b h j]
  Tensor places(const AttendContext& context) const {
    if (!context.x.defined())
      fail("cable", "no layer input given; x [batch, key, dim] required, as the steps are made of it");
    Tensor steps = transpose(cast(softplus(step_(context.x)), compute_dtype(context.dtype())));  // [b h j]
    if (context.present.defined())
      steps = masked(steps, context.on_device(select(context.present, 1, 0)));  // padding takes no step
    return probe("places", cumulative_sum(steps));
  }

  Linear step_;  // weight [h c], bias [h]
};

const RegisterScheme registered{{.name = "cable",
    .title = "Cable: steps whose length the tokens decide",
    .paper = "Veisi et al. 2025, arXiv:2503.08067",
    .equation = "A_ij = S_ij - sum_{l=j+1..i} softplus(w_h.x_l + b_h)",
    .probes = {{"places", "b h t", "how far token t has come", "c_t = sum_{l<=t} softplus(w_h.x_l + b_h)  (Cable)",
                   ProbeInfo::sequential},
        {"bias", "b h i j", "how far key j lies back from query i", "c_j - c_i  (Cable)"}},
    .make = make_scheme<Cable>}};

}  // namespace
}  // namespace whence

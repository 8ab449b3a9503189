// Context-aware biases: each token chooses the length of its step, and a key's distance is the sum of the steps from
// it.
//                                                                            Veisi et al. 2025, arXiv:2503.08067v3
//   c_t  = sum_{l<=t} f(w_h.x_l + b_h)                         the path length up to token t, in head h      (Eq. 2)
//   A_ij = S_ij - g_h(x_i) (c_i - c_j)                         ALiBi with steps that depend on the text      (Eq. 6)
//   g_h(x) = softplus(s_h.x)                                   and a slope that depends on the query         (Eq. 7)
//   step=relu, f(z) = max(z, 0), is the paper's. step=softplus with weight=no, where g = 1, is the released code of the
//   first version. Because softplus(z) = -log sigmoid(-z), that one is `forgetting` with the gates' signs reversed.
//   Each scheme was published without the other. With slopes there are more functions (nn/errata.md, D10).
// Gradients die: in a token that takes no step, with relu for good; in its step where softplus is nearly 0; in a
// slope that is nearly 0. No position is read. GPU tiles have no slopes: there weight=yes runs as composed ops.
#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/attention/heads.h"
#include "nn/layers/layers.h"
#include "nn/positional/later/fading.h"

namespace whence {
namespace {

class Cable final : public Fading {
 public:
  explicit Cable(const SchemeArguments& arguments)
      : bends_(arguments.word("step") == "softplus"), step_(arguments.sizes().dim, arguments.sizes().heads) {
    child("step", step_);
    if (arguments.word("weight") == "no") return;
    slope_ = std::make_unique<Linear>(arguments.sizes().dim, arguments.sizes().heads, false);
    child("slope", *slope_);
  }

 private:
  // Returns -c.
  Tensor sums(const AttendContext& context) const override {
    const Tensor z = step_(layer_input("cable", context));                                                 // [b j h]
    const Tensor steps = transpose(cast(bends_ ? softplus(z) : relu(z), compute_dtype(context.dtype())));  // [b h j]
    return probe("places", running_sum(context.without_padding(steps, 2), 2)) * -1.0;
  }
  Tensor slopes(const AttendContext& context) const override {
    if (!slope_) return {};
    const Tensor z = (*slope_)(of_queries(layer_input("cable", context), 1, context));  // [b i h]
    return probe("slopes", transpose(softplus(cast(z, compute_dtype(context.dtype())))));
  }

  bool bends_;                     // with softplus
  Linear step_;                    // weight [h c], bias [h]
  std::unique_ptr<Linear> slope_;  // weight [h c]; none with weight=no
};

const RegisterScheme registered{{.name = "cable",
    .title = "Cable: steps of a length that each token chooses",
    .paper = "Veisi et al. 2025, arXiv:2503.08067",
    .equation = "A_ij = S_ij - softplus(s_h.x_i) sum_{l=j+1..i} max(w_h.x_l + b_h, 0)",
    .options = {option::words("weight", {"yes", "no"}, "yes: each query has its own slope; no: 1"),
        option::words("step", {"relu", "softplus"}, "the function of w.x + b that gives a step")},
    .knob = "bias",
    .picture = SchemeInfo::distance,
    .probes = {{"places", "b h t", "length of the path up to token t",
                   "c_t = sum_{l<=t} f(w_h.x_l + b_h)  (Cable, Eq. 2)", ProbeInfo::sequential},
        {"slopes", "b h i", "slope of query i", "g(x_i) = softplus(s_h.x_i)  (Cable, Eq. 7)", ProbeInfo::sequential},
        {"bias", "b h i j", "distance of key j behind query i, in steps", "g(x_i) (c_j - c_i)  (Cable, Eq. 6)"}},
    .variants = {"cable(weight=no)", "cable(step=softplus)", "cable(weight=no, step=softplus)"},
    .make = make_scheme<Cable>}};

}  // namespace
}  // namespace whence

// Context-aware biases: every token takes a step of its own length, and a key lies as far back as the steps from it.
//                                                                            Veisi et al. 2025, arXiv:2503.08067
//   c_t  = sum_{l<=t} softplus(w_h.x_l + b_h)                           how far token t has come, in head h
//   A_ij = S_ij - (c_i - c_j)                                           ALiBi with steps that the text decides
// softplus is what the released code has; as softplus(z) = -log sigmoid(-z), this is `forgetting` with the gates' signs
// the other way round: found apart, the same functions. A step that is nearly 0 learns nearly nothing, d softplus being
// a sigmoid; long ones always learn. No position is read.
#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/attention/layer_input.h"
#include "nn/layers/linear.h"
#include "nn/positional/fading.h"
#include "nn/positional/running_sum.h"

namespace whence {
namespace {

class Cable final : public Fading {
 public:
  explicit Cable(const SchemeArguments& arguments) : step_(arguments.sizes().dim, arguments.sizes().heads) {
    child("step", step_);
  }

 private:
  // -c
  Tensor sums(const AttendContext& context) const override {
    const Tensor z = step_(layer_input("cable", context));                              // [b j h]
    const Tensor steps = transpose(cast(softplus(z), compute_dtype(context.dtype())));  // [b h j]
    return probe("places", running_sum(context.without_padding(steps, 2), 2)) * -1.0;
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

// Hard attention: each query takes the value of one key.
//                                                    Golovneva et al. 2024, arXiv:2405.18719, an ablation of Table 7
//   P_ij = 1 for the largest A_ij that the mask allows, the lowest such j
//        = 0 elsewhere, and in rows without any key; NaN at the first A_ij that is NaN, which counts as the largest
// A choice has no gradient. Backward deliberately uses that of P = softmax(A) (straight through), which is the
// derivative of no function. The paper uses it with absolute positions, and finds that it does not learn.
#include <limits>

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "nn/scheme.h"
#include "tensor/raw.h"

namespace whence {
namespace {

class HardAttention final : public PositionalScheme, public MakesPattern {
 public:
  Claims claims() const override { return {.shift_invariant = true, .uses_positions = false, .exact_gradient = false}; }

  // a:[b h i j]   ->   one hot:[b h i j]
  Tensor pattern(const Tensor& a, const AttendContext& context) const override {
    return straight_through(choice(a, context), probe("soft_pattern", softmax(a, context.mask())));
  }

 private:
  static Tensor choice(const Tensor& a, const AttendContext& context) {
    const NoGrad values_only;
    const Tensor allowed = context.masked(a, -std::numeric_limits<double>::infinity());
    const Tensor best = raw::unsqueeze(raw::argmax(allowed), -1), largest = gather(allowed, -1, best);  // [b h i 1]
    const Tensor number = raw::binary("hard_attention", functions::GreaterEqual{}, largest, largest);   // NaN: 0
    const Tensor one = raw::binary("hard_attention", functions::Divide{}, number, number);
    const Tensor one_hot = sum_by_index(one, best, a.size(3));  // [b h i j]
    return context.masked(one_hot);                             // 0 where the mask leaves no key
  }
};

const RegisterScheme registered{{.name = "hard_attention",
    .title = "hard attention",
    .paper = "Golovneva et al. 2024, arXiv:2405.18719",
    .equation = "P_ij = [j = argmax_l A_il],  dA as of softmax(A)",
    .probes = {{"soft_pattern", "b h i j", "the soft weights; backward uses their gradient instead of the choice's",
        "softmax(A)_ij", ProbeInfo::unit}},
    .variants = {"absolute + hard_attention"},
    .make = make_scheme<HardAttention>}};

}  // namespace
}  // namespace whence

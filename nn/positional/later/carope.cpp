// CARoPE: rope in which each token chooses the base speed of each head.        Veisi et al. 2025, arXiv:2507.23083
//   f_h(x_t) = 1 / (softplus(w_h.x_t + b_h) + 1)            in (0, 1)                                    (section 2)
//   angle_m(t) = sum_{l<=t} f_h(x_l)^m,  m = 0 ... d/2 - 1;   pair m of q_t and k_t is rotated by angle_m(t)
// Rope is f = base^(-2/d) everywhere, because then f^m = base^(-2m/d). The bias b starts near that, as the paper's text
// asks; its formula has no bias (nn/errata.md, D16). Pair 0 counts tokens, whatever they are.
// Gradients die: in pair 0; in slow pairs, by the factor m f^(m-1); where f is near 0, because df = -f^2 sigmoid;
// and where f is near 1, because the sigmoid is near 0. All pairs of a head share one number per token and cannot
// differ.
#include "nn/attention/heads.h"
#include "nn/layers/layers.h"
#include "nn/positional/later/fading.h"
#include "nn/positional/rotation.h"
#include "tensor/raw.h"

namespace whence {
namespace {

class CARoPE final : public PositionalScheme, public RotatesQueryKey {
 public:
  explicit CARoPE(const SchemeArguments& arguments)
      : pairs_(pairs_of_head("carope", arguments)),
        frequency_(arguments.sizes().dim, arguments.sizes().key_heads(), true, Init::normal(0, 0.02),
            Init::constant(bias_of(wave_frequency(1, 2 * pairs_, arguments.number("base"))))) {
    child("frequency", frequency_);
  }

  Claims claims() const override {
    return {.shift_invariant = true, .uses_positions = false, .reads_x = true, .by_key_head = true};
  }
  void check_company(const Stages& stages) const override { require_one_rotation("carope", stages); }

  // q:[b h i d], k:[b g j d]
  void rotate(Tensor& query, Tensor& key, const AttendContext& context) const override {
    const Tensor& x = layer_input("carope", context);
    // In f64 from here on: equal tokens have equal steps, whose rounding errors would add up.
    const Tensor f =
        probe("frequency", reciprocal(softplus(cast(transpose(frequency_(x)), DType::f64)) + 1.0));  // [b g j]
    const Tensor exponents = context.on_device(Tensor::arange(pairs_, DType::f64));
    const Tensor steps = exp(unsqueeze(log(f), 3) * exponents);                                // f^m, [b g j m]
    const Tensor angles = probe("angles", running_sum(context.without_padding(steps, 2), 2));  // [b g j m]
    query = probe("rotated_q", rotary(query, angles_of_queries(angles, query, context)));
    key = probe("rotated_k", rotary(key, angles));
  }

 private:
  // Returns the b for which 1 / (softplus(b) + 1) is `frequency`.
  static double bias_of(double frequency) {
    const double slowness = 1 / frequency - 1;
    return slowness > 30 ? slowness : std::log(std::expm1(slowness));
  }

  index_t pairs_;
  Linear frequency_;  // weight [g c], bias [g]
};

const RegisterScheme registered{{.name = "carope",
    .title = "rope with speeds that each token chooses",
    .paper = "Veisi et al. 2025, arXiv:2507.23083",
    .equation = "S_ij = (R(angle_i) q_i).(R(angle_j) k_j) / sqrt(d),  angle_m(t) = sum_{l<=t} f_h(x_l)^m",
    .options = {option::number("base", 10000, {1.001, 1e12}, "base of the rope that it equals at first")},
    .knob = "angles",
    .picture = SchemeInfo::turn,
    .probes = {{"frequency", "b h t", "speed of pair 1 at token t", "f_h(x_t) = 1 / (softplus(w_h.x_t + b_h) + 1)",
                   ProbeInfo::unit},
        {"angles", "b h t m", "the angle of token t, for each pair of dims", "sum_{l<=t} f_h(x_l)^m  (CARoPE)"},
        {"rotated_q", "b h i d", "queries, each pair rotated by its angle", "R(angle_i) q_i  (CARoPE)"},
        {"rotated_k", "b h j d", "keys, each pair rotated by its angle", "R(angle_j) k_j  (CARoPE)"}},
    .variants = {"carope(base=4)"},
    .make = make_scheme<CARoPE>}};

}  // namespace
}  // namespace whence

// Selective RoPE: rotary angles from the text. Each token decides how far everything after it is rotated.
//                                                                           Movahedi et al. 2025, arXiv:2511.17388
//   u_t     = x_t / |x_t|                                    for each head's slice of the layer's input
//   phi_t   = B A u_t                                        a low-rank map, one number per head h and pair m
//   omega_t = sum_{l < kernel} filter_hm,kernel-1-l phi_{t-l}    a short causal convolution, the token's own weight last
//             silu of it                                     activation=silu
//           + e^{beta_hm}                                    bias=yes: the default step of a token; initially 1
//           ... sigmoid(w_h.u_t + b_h)                       gate=yes: the share of it that counts
//   angle_t = theta_m sum_{l<=t} omega_l,   theta_m = base^(-2m/d);   pair m of q_t and k_t is rotated by angle_t
// We could not read all of the paper's formulas: these lines are the authors' released code and its defaults
// (nn/errata.md, D1). omega = 1 would be RoPE, the start of bias=yes. Padding adds nothing to the sum.
// A token's omega gets the gradient of every pair with this token between query and key; it rotates both or neither of
// other pairs. Gradients die: in slow pairs, by the factor theta_m; where the pairs of q and k point the same
// way, because the cosine is flat there; in filter, A and B once one of them is 0; in a gate that is shut or wide open.
// silu allows almost no step back.
#include "nn/attention/heads.h"
#include "nn/layers/layers.h"
#include "nn/positional/later/fading.h"
#include "nn/positional/rotation.h"
#include "tensor/raw.h"

namespace whence {
namespace {

class SelectiveRope final : public PositionalScheme, public RotatesQueryKey {
 public:
  explicit SelectiveRope(const SchemeArguments& arguments)
      : heads_(arguments.sizes().heads),
        key_heads_(arguments.sizes().key_heads()),
        pairs_(pairs_of_head("selective_rope", arguments)),
        kernel_(arguments.integer("kernel")),
        bends_(arguments.word("activation") == "silu"),
        theta_(Tensor::of(rotation_frequencies(2 * pairs_, arguments.number("base")), {pairs_}, DType::f64)),
        down_(arguments.sizes().dim, arguments.integer("rank"), false, Init::fan_in(arguments.sizes().dim)),
        up_(arguments.integer("rank"), key_heads_ * pairs_, false, Init::fan_in(arguments.integer("rank"))),
        filter_(param("convolution", {key_heads_, pairs_, kernel_}, Init::fan_in(kernel_))) {
    child("down", down_);
    child("up", up_);
    if (arguments.yes("bias")) bias_ = param("bias", {key_heads_, 1, pairs_}, Init::zeros(), false);
    if (!arguments.yes("gate")) return;
    const Init drawn = Init::fan_in(arguments.sizes().dim);
    gate_ = std::make_unique<Linear>(arguments.sizes().dim, key_heads_, true, drawn, drawn);
    child("gate", *gate_);
  }

  Claims claims() const override {
    return {.shift_invariant = true, .uses_positions = false, .reads_x = true, .by_key_head = true};
  }
  void check_company(const Stages& stages) const override { require_one_rotation("selective_rope", stages); }

  // q:[b h i d], k:[b g j d]
  void rotate(Tensor& query, Tensor& key, const AttendContext& context) const override {
    const Tensor angles = angles_of(context);  // [b g j m]
    query = probe("rotated_q", rotary(query, angles_of_queries(angles, query, context)));
    key = probe("rotated_k", rotary(key, angles));
  }

 private:
  // [b g j m]
  Tensor angles_of(const AttendContext& context) const {
    const Tensor& input = layer_input("selective_rope", context);
    const DType dtype = input.dtype(), wide = compute_dtype(dtype);
    const Tensor x = by_head(cast(input, wide), heads_);                                       // [b h j d]
    const Tensor u = cast(joined(x / sqrt(sum(square(x), {-1}, true) + 1e-6)), dtype);         // [b j c]
    Tensor omega = convolved(context.without_padding(by_head(up_(down_(u)), key_heads_), 2));  // [b g j m]
    if (bends_) omega = silu(omega);
    // An error of exp(bias) in 16 bits is the same in every token, so that the sum would grow with it.
    if (bias_.defined()) omega = context.without_padding(cast(omega, wide) + exp(cast(bias_, wide)), 2);
    if (gate_)
      omega = omega * cast(probe("gates", by_head(sigmoid((*gate_)(u)), key_heads_)), omega.dtype());  // [b g j 1]
    omega = probe("steps", omega);
    return probe("angles", running_sum(omega, 2) * context.on_device(theta_));
  }

  // Convolves each pair along the tokens, [b g j m]; before the first token phi is 0.
  Tensor convolved(const Tensor& phi) const {
    Tensor total = phi * tap(0);  // the token's own
    const index_t tokens = phi.size(2);
    for (index_t lag = 1; lag < std::min(kernel_, tokens); ++lag) {
      const Tensor nothing = Tensor::zeros(slice(phi, 2, 0, lag).shape(), phi.dtype(), phi.device());
      total = total + concat_along(2, {nothing, slice(phi, 2, 0, tokens - lag)}) * tap(lag);
    }
    return total;
  }
  Tensor tap(index_t lag) const { return unsqueeze(select(filter_, 2, kernel_ - 1 - lag), 1); }  // [g 1 m]

  static Tensor joined(const Tensor& x) {  // [b h j n] -> [b j (h n)]
    return reshape(permute(x, {0, 2, 1, 3}), {x.size(0), x.size(2), x.size(1) * x.size(3)});
  }

  index_t heads_, key_heads_, pairs_, kernel_;
  bool bends_;                    // with silu
  Tensor theta_;                  // [m] f64
  Linear down_, up_;              // A [rank c], B [g m, rank]
  Tensor filter_, bias_;          // [g m kernel], the last tap for the token itself; [g 1 m] or undefined
  std::unique_ptr<Linear> gate_;  // weight [g c], bias [g]; null without gate=yes
};

const RegisterScheme registered{{.name = "selective_rope",
    .title = "rotary angles that depend on the text",
    .paper = "Movahedi et al. 2025, arXiv:2511.17388",
    .equation = "S_ij = (R(angle_i) q_i).(R(angle_j) k_j) / sqrt(d),  angle_t = base^(-2m/d) sum_{l<=t} omega_m(x_l)",
    .options = {option::number("base", 500000, {1, 1e12}, "how much slower the last pairs rotate than the first"),
        option::integer("rank", 16, {1, 65536}, "rank of the map from the layer's input to the angles"),
        option::integer("kernel", 4, {1, 1024}, "tokens that a step depends on, the last ones"),
        option::words("activation", {"none", "silu"}, "activation after the convolution"),
        option::yes_no("bias", "yes: every token adds a learned step of its pair, initially 1"),
        option::yes_no("gate", "yes: a gate per head scales each token's step")},
    .knob = "steps",
    .picture = SchemeInfo::turn,
    .probes = {{"gates", "b h t n", "share of token t's step that counts", "sigmoid(w_h.u_t + b_h)  (Selective RoPE)",
                   ProbeInfo::unit},
        {"steps", "b h t m", "rotation by token t of all later tokens, before the pair's speed",
            "omega_t  (Selective RoPE)"},
        {"angles", "b h t m", "the angle of token t, for each pair of dims",
            "base^(-2m/d) sum_{l<=t} omega_l  (Selective RoPE)"},
        {"rotated_q", "b h i d", "queries, each pair rotated by its angle", "R(angle_i) q_i  (Selective RoPE)"},
        {"rotated_k", "b h j d", "keys, each pair rotated by its angle", "R(angle_j) k_j  (Selective RoPE)"}},
    .variants = {"selective_rope(rank=2, kernel=1)", "selective_rope(base=10, rank=3, gate=yes)",
        "selective_rope(base=10, kernel=2, activation=silu, bias=yes)"},
    .make = make_scheme<SelectiveRope>}};

}  // namespace
}  // namespace whence

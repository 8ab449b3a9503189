// RePo: each token chooses its own position, and is rotated by it instead of by 0, 1, 2, ...
//                                                                              Li et al. 2025, arXiv:2512.14391
//   r_t     = silu(W_g x_t) * (W_c x_t)      position representation, c/8 numbers, one for all heads
//   z_t     = w_h.r_t                        position of token t in head h: any real number
//   pair m of q_t and k_t is rotated by z_t base^(-2m/d), as in RoPE, so that S_ij depends on z_i - z_j
// Positions are not summed; only the causal mask depends on order. The paper's model keeps rope in its first layers.
// Gradients die: initially, where r or w_h is 0; in slow pairs, by their speed; where the pairs of q and k point
// the same way, because the cosine is flat there; in W_c and w_h where silu's gate is shut, W_g x_t far below 0. If z
// changes by many rotations of the fast pairs, the loss has many hills: positions learn while they are small.
#include "nn/attention/heads.h"
#include "nn/layers/layers.h"
#include "nn/positional/rotation.h"
#include "tensor/raw.h"

namespace whence {
namespace {

class RePo final : public PositionalScheme, public RotatesQueryKey {
 public:
  explicit RePo(const SchemeArguments& arguments)
      : pairs_(pairs_of_head("repo", arguments)),
        theta_(Tensor::of(rotation_frequencies(2 * pairs_, arguments.number("base")), {pairs_}, DType::f64)),
        gate_(arguments.sizes().dim, width_of(arguments), false),
        content_(arguments.sizes().dim, width_of(arguments), false),
        position_(width_of(arguments), arguments.sizes().key_heads(), false) {
    child("gate", gate_);
    child("content", content_);
    child("position", position_);
  }

  Claims claims() const override {
    return {.shift_invariant = true, .uses_positions = false, .reads_x = true, .by_key_head = true};
  }
  void check_company(const Stages& stages) const override { require_one_rotation("repo", stages); }

  // q:[b h i d], k:[b g j d]
  void rotate(Tensor& query, Tensor& key, const AttendContext& context) const override {
    const Tensor& x = layer_input("repo", context);
    const Tensor r = silu(gate_(x)) * content_(x);  // [b j n]
    const DType wide = compute_dtype(r.dtype());    // 16 bits would round far positions
    const Tensor z =
        probe("positions", transpose(linear(cast(r, wide), cast(position_.weight(), wide), {})));  // [b g j]
    const Tensor angles = unsqueeze(z, 3) * context.on_device(raw::cast(theta_, z.dtype()));       // [b g j m]
    query = probe("rotated_q", rotary(query, angles_of_queries(angles, query, context)));
    key = probe("rotated_k", rotary(key, angles));
  }

 private:
  static index_t width_of(const SchemeArguments& arguments) {
    const index_t given = arguments.integer("width");
    return given ? given : std::max<index_t>(arguments.sizes().dim / 8, 1);
  }

  index_t pairs_;
  Tensor theta_;                      // [m] f64
  Linear gate_, content_, position_;  // W_g, W_c [n c], w [g n]
};

const RegisterScheme registered{{.name = "repo",
    .title = "positions that each token chooses",
    .paper = "Li et al. 2025, arXiv:2512.14391",
    .equation = "S_ij = (R(z_i) q_i).(R(z_j) k_j) / sqrt(d),  z_t = w_h.(silu(W_g x_t) * (W_c x_t))",
    .options = {option::number(
                    "base", 10000, {1, 1e12}, "the slowest pair makes one rotation in about 2 pi base positions"),
        option::integer("width", 0, {0, 65536}, "numbers from which a position is computed; 0: dim / 8")},
    .knob = "positions",
    .picture = SchemeInfo::turn,
    .probes = {{"positions", "b h t", "the position that each token chooses, in each head",
                   "z_t = w_h.(silu(W_g x_t) * (W_c x_t))  (RePo)"},
        {"rotated_q", "b h i d", "queries, each pair rotated by the query's own position", "R(z_i) q_i  (RePo)"},
        {"rotated_k", "b h j d", "keys, each pair rotated by the key's own position", "R(z_j) k_j  (RePo)"}},
    .variants = {"repo(base=100, width=3)"},
    .make = make_scheme<RePo>}};

}  // namespace
}  // namespace whence

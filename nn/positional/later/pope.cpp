// Polar positions: the fit of a query and a key is split into a content part and a position part.
//                                                                  Gopalakrishnan et al. 2025, arXiv:2509.10534
//   mu     = softplus(q), softplus(k)                         magnitudes: the content, never negative
//   S_ij   = sum_{c<d} mu_ic mu_jc cos((j - i) theta_c + delta_hc) / sqrt(d),   theta_c = base^(-c/d)
//   q'_c   = mu_ic (cos i theta_c, sin i theta_c)             phases: the position; each dim is a pair, so d becomes 2d
//   k'_c   = mu_jc (cos, sin)(j theta_c + delta_hc)
//   delta in [-2 pi, 0], learned, clamped after each step: the distance at which a dim fits best.
// In RoPE the angle between the pairs of q and k shifts the best distance; here q and k have no angle of their own.
// Gradients die: in softplus far below 0, where its derivative sigmoid(x) is 0; for delta in dims where mu is 0,
// and at a distance where the cosine is flat. A magnitude is not negative, so a query can push a key away only by its
// phase.
#include <numbers>

#include "nn/positional/rotation.h"

namespace whence {
namespace {

class PoPE final : public PositionalScheme, public RotatesQueryKey, public DoublesDims {
 public:
  explicit PoPE(const SchemeArguments& arguments) {
    const index_t heads = arguments.sizes().key_heads(), dims = arguments.sizes().head_dim();
    const double low = -2 * std::numbers::pi;
    theta_ = Tensor::of(rotation_frequencies(2 * dims, arguments.number("base")), {dims}, DType::f64);
    delta_ = param("phase", {heads, 1, dims}, arguments.word("phase") == "zero" ? Init::zeros() : Init::uniform(low, 0),
        false, {.low = low, .high = 0});
  }

  Claims claims() const override { return {.shift_invariant = true, .by_key_head = true}; }
  void check_company(const Stages& stages) const override { require_one_rotation("pope", stages); }

  // q:[b h i d], k:[b g j d]   ->   [b h i 2d], [b g j 2d]
  void rotate(Tensor& query, Tensor& key, const AttendContext& context) const override {
    const DType dtype = query.dtype(), wide = compute_dtype(dtype);
    const Tensor of_query = probe("magnitude_q", softplus(cast(query, wide))),
                 of_key = probe("magnitude_k", softplus(cast(key, wide))), delta = cast(delta_, wide);
    const auto placed = [&](const Tensor& first, const Tensor& second, const Tensor& positions) {
      return rotary(cast(concat_along(3, {first, second}), dtype), rotation_angles(positions, theta_));
    };
    query = probe("rotated_q", placed(of_query, of_query * 0.0, context.positions.query));
    key = probe("rotated_k", placed(of_key * cos(delta), of_key * sin(delta), context.positions.key));
  }

 private:
  Tensor theta_, delta_;  // [d] f64; [g 1 d]
};

const RegisterScheme registered{{.name = "pope",
    .title = "polar positions: content and position apart",
    .paper = "Gopalakrishnan et al. 2025, arXiv:2509.10534",
    .equation = "S_ij = sum_c softplus(q_ic) softplus(k_jc) cos((j - i) base^(-c/d) + delta_hc) / sqrt(d)",
    .options = {option::number(
                    "base", 10000, {1, 1e12}, "the slowest dim makes one rotation in about 2 pi base positions"),
        option::words("phase", {"zero", "uniform"}, "initial delta; uniform: on [-2 pi, 0]")},
    .probes = {{"magnitude_q", "b h i d", "magnitude of each dim of query i", "softplus(q_ic)  (PoPE)"},
        {"magnitude_k", "b h j d", "magnitude of each dim of key j", "softplus(k_jc)  (PoPE)"},
        {"rotated_q", "b h i n", "queries: each dim's magnitude at the angle of its position",
            "softplus(q_ic) (cos, sin)(i theta_c)  (PoPE)"},
        {"rotated_k", "b h j n", "keys: each dim's magnitude at the angle of its position and phase",
            "softplus(k_jc) (cos, sin)(j theta_c + delta_hc)  (PoPE)"}},
    .variants = {"pope(base=100, phase=uniform)"},
    .make = make_scheme<PoPE>}};

}  // namespace
}  // namespace whence

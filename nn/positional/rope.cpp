// Rotary position embedding: pairs of query and key dims turn with the position, so that q.k depends on the distance
// alone.                                                                            Su et al. 2021, arXiv:2104.09864
//   theta_m = base^(-2m/d'),  m = 0 ... d'/2 - 1;   pair m is rotated by t theta_m;   values stay
//   half (NeoX, Llama): pairs (m, m + d'/2).   interleaved (RoFormer): pairs (2m, 2m + 1)
//   d' = width <= d dims rotate, the rest stay.
#include "nn/positional/rotation.h"

namespace whence {
namespace {

class Rope final : public PositionalScheme, public RotatesQueryKey {
 public:
  explicit Rope(const SchemeArguments& arguments)
      : rotation_(rotation_of(arguments)),
        theta_(Tensor::of(
            rotation_frequencies(rotation_.width, arguments.number("base")), {rotation_.width / 2}, DType::f64)) {}

  Claims claims() const override { return {.shift_invariant = true}; }
  void check_company(const Stages& stages) const override { require_one_rotation("rope", stages); }

  // q:[b h i d], k:[b h j d]
  void rotate(Tensor& query, Tensor& key, const AttendContext& context) const override {
    const Positions& positions = context.positions;
    const Tensor of_query = rotation_angles(positions.query, theta_), of_key = rotation_angles(positions.key, theta_);
    query = probe("rotated_q", rotary(query, of_query, rotation_.interleaved));  // [b h i d]
    key = probe("rotated_k", rotary(key, of_key, rotation_.interleaved));        // [b h j d]
  }

 private:
  Rotation rotation_;
  Tensor theta_;  // [width/2] f64
};

const RegisterScheme registered{{.name = "rope",
    .aliases = {"rotary"},
    .title = "rotary position embedding",
    .paper = "Su et al. 2021, arXiv:2104.09864",
    .equation = "S_ij = (R_i q_i).(R_j k_j) / sqrt(d),  R_t turns pair m by t base^(-2m/d)",
    .options = rotation_options(),
    .probes = {{"rotated_q", "b h i d", "queries, each pair turned by its position", "R_i q_i  (RoPE)"},
        {"rotated_k", "b h j d", "keys, each pair turned by its position", "R_j k_j  (RoPE)"}},
    .variants = {"rope(layout=interleaved, width=2)"},
    .make = make_scheme<Rope>}};

}  // namespace
}  // namespace whence

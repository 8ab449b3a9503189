// Queries and keys normalised to one length, so that no score can grow without bound.
//                          Henry et al. 2020, arXiv:2010.04245; Dehghani et al. 2023, arXiv:2302.05442 (ViT-22B)
//   q_i -> w_q q_i / sqrt(mean(q_i^2) + 1e-6),  k_j -> w_k k_j / sqrt(mean(k_j^2) + 1e-6);   w [d], one for all heads
//   |S_ij| <= sqrt(d) max|w_q| max|w_k|
// Root mean square, as in Qwen3 (`qk_norm + rope`: before the rotation) and nanochat (`rope + qk_norm(weight=none)`:
// after it). Henry et al. divide by the length and learn one factor in place of w / sqrt(d); ViT-22B uses a layer norm.
// No position is read. CoPE's q.e uses the query as projected; with z_from=rotated it uses the normalised query.
// Gradients die: along q and k themselves, because their lengths have no effect. The rest is divided by the
// length, so long queries learn slowly. A weight w of 0 in a dim stops everything through it.
#include "nn/positional/rotation.h"

namespace whence {
namespace {

class QkNorm final : public PositionalScheme, public RotatesQueryKey, public KeepsAngles {
 public:
  explicit QkNorm(const SchemeArguments& arguments) {
    if (arguments.word("weight") == "none") return;
    query_weight_ = param("query_weight", {arguments.sizes().head_dim()}, Init::ones(), false);
    key_weight_ = param("key_weight", {arguments.sizes().head_dim()}, Init::ones(), false);
  }

  Claims claims() const override { return {.shift_invariant = true, .uses_positions = false}; }

  void check_company(const Stages& stages) const override {
    for (const auto& stage : stages.rotates) {
      if (stage.scheme == this) return;
      if (dynamic_cast<const CancelsInProduct*>(stage.scheme))
        throw InputError("qk_norm: given behind xpos, whose factors cancel in q.k alone; write qk_norm first");
      if (!query_weight_.defined() || dynamic_cast<const KeepsAngles*>(stage.scheme)) continue;
      throw InputError(
          "qk_norm: learned weights behind a rotation given; scores would depend on where tokens stand, not on their "
          "distance; write qk_norm first, or weight=none");
    }
  }

  // q:[b h i d], k:[b g j d]
  void rotate(Tensor& query, Tensor& key, const AttendContext&) const override {
    query = probe("normed_q", rms_norm(query, weight(query_weight_, query)));
    key = probe("normed_k", rms_norm(key, weight(key_weight_, key)));
  }

 private:
  static Tensor weight(const Tensor& learned, const Tensor& x) {
    return learned.defined() ? learned : Tensor::ones({x.size(-1)}, x.dtype(), x.device());
  }

  Tensor query_weight_, key_weight_;  // [d]; undefined with weight=none
};

const RegisterScheme registered{{.name = "qk_norm",
    .title = "queries and keys of one length",
    .paper = "Henry et al. 2020, arXiv:2010.04245; Dehghani et al. 2023, arXiv:2302.05442",
    .equation = "S_ij = (w_q q_i / rms(q_i)).(w_k k_j / rms(k_j)) / sqrt(d)",
    .options = {option::words("weight", {"learned", "none"}, "a factor for each dim, or none")},
    .probes = {{"normed_q", "b h i d", "queries, all of one length", "w_q q_i / rms(q_i)"},
        {"normed_k", "b h j d", "keys, all of one length", "w_k k_j / rms(k_j)"}},
    .variants = {"qk_norm + rope", "rope + qk_norm(weight=none)", "pope + qk_norm(weight=none)",
        "cope(p_max=3, z_from=rotated) + qk_norm"},
    .make = make_scheme<QkNorm>}};

}  // namespace
}  // namespace whence

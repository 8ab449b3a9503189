// Contextual Position Encoding: positions count what the query finds worth counting.   Golovneva et al. 2024,
// arXiv:2405.18719
//   p_ij   = min(sum_{l=j..i} g_il, p_max)                     gates and positions: nn/positional/contextual.h
//   (Eq. 3, 4)
//   z_i[n] = q_i.e[n]                                          one number per whole position
//   (Eq. 7)
//   A_ij   = S_ij + (1-w) z_i[floor p] + w z_i[ceil p],  w = p - floor p
//   (Listing 1)
// Equations 5 and 8 print the two weights the other way round; Listing 1, which the authors ran, is what stands here
// (nn/README.md, A1).
// Where gradients die: e is zero at first, so that the gates have none before e has moved; at p_max, where the clamp
// is; at whole positions, where floor and ceiling are one row; in saturated gates.
#include <cmath>

#include "autograd/ops.h"
#include "autograd/probe.h"
#include "nn/positional/contextual.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

class CoPE final : public Contextual {
 public:
  explicit CoPE(const SchemeArguments& arguments)
      : Contextual(arguments),
        p_max_(arguments.integer("p_max")),
        asked_(arguments),
        swapped_(arguments.word("interpolation") == "equation5"),
        table_(param("table", {p_max_ + 1, arguments.sizes().head_dim()}, Init::zeros())) {}

  // A rotated query makes q.e depend on where the query stands.
  Claims claims() const override {
    return {.causal_only = true, .shift_invariant = !asked_.rotated, .uses_positions = false};
  }
  void check_company(const Stages& stages) const override { asked_.check_company("cope", stages); }

  // s:[b h i j]   ->   s + interpolated q.e:[b h i j]
  Tensor transform_scores(const Tensor& s, const AttendContext& at) const override {
    const Tensor p = probe("positions", clamp_max(positions(at), static_cast<double>(p_max_)));
    const Tensor z = matmul(asked_.query(at), transpose(table_), asked_.factor(at));  // Eq. 7, [b h i n]
    const Tensor c = lerp_at(cast(z, p.dtype()), swapped_ ? mirrored(p) : p);         // Listing 1
    return s + probe("position_logit", cast(c, s.dtype()));
  }

 private:
  // floor p + ceil p - p: reading there exchanges the two weights, as Eq. 5 prints them. Whole positions stay where
  // they are, so that the result jumps at each of them.
  static Tensor mirrored(const Tensor& p) {
    std::vector<double> ends = p.to_vector();
    for (double& each : ends) each = std::floor(each) + std::ceil(each);
    return raw::to_device(Tensor::of(ends, p.shape(), p.dtype()), p.device()) - p;
  }

  index_t p_max_;
  PositionQuery asked_;
  bool swapped_;
  Tensor table_;  // e: [p_max + 1, d], shared by the heads, zero at first: the model starts without positions
};

bool one_table(const SchemeArguments& arguments) { return arguments.word("table") == "shared"; }

const RegisterScheme registered{{.name = "cope",
    .aliases = {"contextual"},
    .title = "Contextual Position Encoding",
    .paper = "Golovneva et al. 2024, arXiv:2405.18719",
    .equation = "A_ij = S_ij + q_i.e[p_ij],  p_ij = sum_{l=j..i} sigmoid(q_i.k_l / sqrt(d))",
    .options = {{"p_max", SchemeOption::Kind::integer, "64", 1, 1e6, {},
                    "largest position; the table has p_max + 1 rows"},
        Contextual::gates_option(), PositionQuery::scale_option(), PositionQuery::from_option(),
        {"table", SchemeOption::Kind::word, "per_layer", 0, 0, {"per_layer", "shared"},
            "e of each layer, or one e for all"},
        {"interpolation", SchemeOption::Kind::word, "listing", 0, 0, {"listing", "equation5"},
            "listing, or the swapped weights of Eq. 5 as printed, to see the error"}},
    .shared = one_table,
    .variants = {"cope(p_max=2)", "cope(p_max=3, gates=separate_keys)", "cope(p_max=3, gates=values, z_scale=head)",
        "cope(p_max=3, table=shared)", "cope(p_max=3, interpolation=equation5)", "cope(p_max=2) + rope",
        "cope(p_max=2, z_from=rotated) + rope"},
    .make = [](const SchemeArguments& arguments) -> std::unique_ptr<PositionalScheme> {
      if (one_table(arguments) && arguments.word("gates") == "separate_keys") {
        throw InputError(
            "cope: table=shared with gates=separate_keys given; a scheme that serves all layers has no keys of one "
            "layer; "
            "table=per_layer required");
      }
      return std::make_unique<CoPE>(arguments);
    }}};

}  // namespace
}  // namespace whence

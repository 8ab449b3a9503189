// Contextual Position Encoding: positions count what the query finds worth counting.   Golovneva et al. 2024, arXiv:2405.18719 (SPEC 3.16)
//   g_ij   = sigmoid(q_i.k_j / sqrt(d)), 0 where masked        gates                                                        (Eq. 3)
//   p_ij   = sum_{l=j..i} g_il, at most p_max                  positions: how many open gates from j up to i, i included    (Eq. 4)
//   z_i[n] = q_i.e[n]                                          one number per whole position                                (Eq. 7)
//   A_ij   = S_ij + (1-w) z_i[floor p] + w z_i[ceil p],  w = p - floor p                                                (Listing 1)
// Equations 5 and 8 print the two weights the other way round; Listing 1, which the authors ran, is what stands here (SPEC A1).
#include <cmath>

#include "autograd/ops.h"
#include "autograd/probe.h"
#include "nn/linear.h"
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence {
namespace {

enum class Gates { from_keys, from_values, from_separate_keys };

struct CopeOptions {
  index_t p_max;
  Gates gates;
  bool scale_positions;  // z divided by sqrt(d), as the authors' repository does (SPEC A2)
  bool rotated_query;    // z from the rotated query, where another scheme rotates (SPEC A13)
};

class CoPE final : public PositionalScheme, public TransformsScores {
 public:
  CoPE(const SchemeSizes& sizes, const CopeOptions& options)
      : options_(options), heads_(sizes.heads), table_(param("table", {options.p_max + 1, sizes.head_dim()}, Init::zeros())) {
    if (options.gates != Gates::from_separate_keys) return;
    gate_key_ = std::make_unique<Linear>(sizes.dim, sizes.dim);
    child("gate_key", *gate_key_);
  }

  // A rotated query makes q.e depend on where the query stands.
  Claims claims() const override { return {.causal_only = true, .shift_invariant = !options_.rotated_query}; }

  void check_company(const Stages& stages) const override {
    if (!options_.rotated_query || !stages.rotates.empty()) return;
    throw InputError("cope: z_from=rotated given without a scheme that rotates; it has no effect; add rope, or leave it out");
  }

  // s:[b h i j]   ->   s + interpolated q.e:[b h i j]
  Tensor transform_scores(const Tensor& s, const AttendContext& at) const override {
    const Tensor g = probe("gates", at.keep(sigmoid(gate_scores(at))));                                              // Eq. 3
    const Tensor p = probe("positions", clamp_max(reverse_cumulative_sum(g), static_cast<double>(options_.p_max)));  // Eq. 4
    const Tensor& q = options_.rotated_query ? at.query : at.unrotated_query;
    const Tensor z = matmul(q, transpose(table_), options_.scale_positions ? at.scale : 1);  // Eq. 7, [b h i n]
    return s + probe("position_logit", lerp_at(z, p));                                       // Listing 1
  }

 private:
  // What the gates' sigmoid reads: q.kappa / sqrt(d), where kappa is the key, the value, or a key of its own.
  Tensor gate_scores(const AttendContext& at) const {
    if (options_.gates == Gates::from_keys) return at.content_scores;
    if (options_.gates == Gates::from_values) return matmul(at.unrotated_query, transpose(at.value), at.scale);
    const Tensor gate_key = (*gate_key_)(at.x);                                                                         // [b t c]
    const Tensor by_head = permute(reshape(gate_key, {gate_key.size(0), gate_key.size(1), heads_, -1}), {0, 2, 3, 1});  // [b h d j]
    return matmul(at.unrotated_query, by_head, at.scale);
  }

  CopeOptions options_;
  index_t heads_;
  Tensor table_;  // e: [p_max + 1, d], shared by the heads, zero at first: the model starts without positions
  std::unique_ptr<Linear> gate_key_;
};

const RegisterScheme registered{
    {.name = "cope",
     .aliases = {"contextual"},
     .title = "Contextual Position Encoding",
     .paper = "Golovneva et al. 2024, arXiv:2405.18719",
     .equation = "A_ij = S_ij + q_i.e[p_ij],  p_ij = sum_{l=j..i} sigmoid(q_i.k_l / sqrt(d))",
     .options =
         {{"p_max", SchemeOption::Kind::integer, "64", 1, 1e6, {}, "largest position; the table has p_max + 1 rows"},
          {"gates", SchemeOption::Kind::word, "keys", 0, 0, {"keys", "values", "separate_keys"}, "what the gates compare queries with"},
          {"z_scale", SchemeOption::Kind::word, "1", 0, 0, {"1", "head"}, "factor of q.e: 1 as in Listing 1, or head: 1/sqrt(d)"},
          {"z_from", SchemeOption::Kind::word, "unrotated", 0, 0, {"unrotated", "rotated"}, "the query in q.e, beside a rotation"}},
     .make = [](const SchemeArguments& arguments) -> std::unique_ptr<PositionalScheme> {
       const std::string& gates = arguments.word("gates");
       const Gates source = gates == "keys" ? Gates::from_keys : gates == "values" ? Gates::from_values : Gates::from_separate_keys;
       return std::make_unique<CoPE>(arguments.sizes(), CopeOptions{arguments.integer("p_max"), source, arguments.word("z_scale") == "head",
                                                                    arguments.word("z_from") == "rotated"});
     }}};

}  // namespace
}  // namespace whence

// Multi-token attention: a score also depends on those of earlier queries, and of neighbouring keys on both sides.
//                                                                         Golovneva et al. 2025, arXiv:2504.00927
//   A_ij = sum_{a<cq} sum_{c<ck} theta_h[a, c] S_{i-cq+1+a, j-ck/2+c}      S is 0 where masked and outside
//   P    = softmax of A where the mask allows;   P_o <- sum_c m_oc P_c over the heads of a group    (head convolution)
// "Where did Alice see the rabbit": one query finds Alice, the query before it the rabbit, and the key near both
// answers both. theta and m start as the identity; the parameters are the difference from it, initially 0.
// convolve=pattern and mix_scores=yes move the two operations to the paper's other places. The authors' group norm and
// the gate after attention do not concern positions and are left out (gated_output is such a gate).
// A row needs the cq - 1 query rows before it: strips refuse, and decoding computes earlier rows again. The row of an
// earlier query is masked by its own mask (nn/errata.md, D7). A model of one head has no head mix: there is no m, and
// mix_scores=yes is refused.
// Gradients die: nowhere in the convolutions. A score that is masked in its own row has no gradient.
#include "autograd/convolve_heads.h"
#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence {
namespace {

class Mta final : public PositionalScheme, public MapsScores, public MakesPattern {
 public:
  explicit Mta(const SchemeArguments& arguments)
      : queries_(arguments.integer("queries")),
        keys_(arguments.integer("keys")),
        group_(arguments.integer("heads") ? arguments.integer("heads") : arguments.sizes().heads) {
    const index_t heads = arguments.sizes().heads;
    if (keys_ % 2 == 0) throw InputError("mta: keys ", keys_, " given; an odd number required, as many on both sides");
    if (heads % group_)
      throw InputError("mta: heads ", group_, " given, in a model of ", heads, "; groups of equal size required");
    if (arguments.yes("mix_scores") && heads < 2)
      throw InputError("mta: mix_scores=yes given in a model of one head; two or more required, as heads are mixed");
    const std::string& where = arguments.word("convolve");
    const Shape kernel{heads, 1, queries_, keys_};
    if (where != "pattern") of_scores_ = param("convolution", kernel, Init::zeros(), false);
    if (where != "scores") of_pattern_ = param("pattern_convolution", kernel, Init::zeros(), false);
    if (arguments.yes("mix_scores")) scores_mix_ = param("scores_mix", {1, heads, heads}, Init::zeros(), false);
    if (group_ > 1) pattern_mix_ = param("pattern_mix", {heads / group_, group_, group_}, Init::zeros(), false);
  }

  Claims claims() const override {
    return {.causal_only = true,
        .shift_invariant = true,
        .row_local = queries_ == 1,
        .mask_per_head = !mixes_heads(),
        .uses_positions = false};
  }

  // a:[b h i j]   ->   conv(a):[b h i j]
  Tensor map_scores(const Tensor& a, const AttendContext& context) const override {
    require_one_mask(context);
    Tensor x = context.masked(a);
    if (of_scores_.defined()) x = probe("convolved", x + convolved(x, of_scores_, context));
    return scores_mix_.defined() ? probe("mixed_scores", x + mixed(x, scores_mix_)) : x;
  }

  // [b h i j]
  Tensor pattern(const Tensor& logits, const AttendContext& context) const override {
    Tensor p = probe("softmax", softmax(logits, context.mask()));
    if (of_pattern_.defined()) p = probe("convolved_pattern", context.masked(p + convolved(p, of_pattern_, context)));
    return pattern_mix_.defined() ? p + mixed(p, pattern_mix_) : p;
  }

 private:
  bool mixes_heads() const { return scores_mix_.defined() || pattern_mix_.defined(); }
  void require_one_mask(const AttendContext& context) const {
    if (!mixes_heads() || !context.given_mask.defined() || context.given_mask.rank() < 3 ||
        context.given_mask.size(-3) == 1)
      return;
    throw InputError("mta: a mask of ", context.given_mask.shape(),
        " given; one for all heads, [1|b 1 i j], required, ", "as the heads are mixed; or heads=1");
  }

  // [b h i j]
  Tensor convolved(const Tensor& x, const Tensor& theta, const AttendContext& context) const {
    return convolve_heads(
        x, reshape(theta, {x.size(1), queries_, keys_}), context.causal ? context.first_row : x.size(3));
  }
  // Multiplies x [b h i j] by m [groups out in].
  static Tensor mixed(const Tensor& x, const Tensor& m) {
    return reshape(matmul(m, reshape(x, {x.size(0), m.size(0), m.size(1), x.size(2) * x.size(3)})), x.shape());
  }

  index_t queries_, keys_, group_;
  Tensor of_scores_, of_pattern_;    // theta minus the identity, [h 1 cq ck]
  Tensor scores_mix_, pattern_mix_;  // m minus the identity, [groups out in]
};

const RegisterScheme registered{{.name = "mta",
    .aliases = {"multi_token_attention"},
    .title = "multi-token attention: scores of neighbours together",
    .paper = "Golovneva et al. 2025, arXiv:2504.00927",
    .equation = "A = conv(S masked to 0) over cq queries and ck keys,  P <- m softmax(A) over groups of heads",
    .options = {option::integer("queries", 6, {1, 64}, "query rows that a score depends on; the last is its own"),
        option::integer("keys", 11, {1, 63}, "keys that a score depends on; its own is in the middle; odd"),
        option::integer("heads", 0, {0, 1024}, "heads per group that are mixed after the softmax; 0: all, 1: none"),
        option::words("convolve", {"scores", "pattern", "both"}, "before the softmax, after it, or both"),
        option::yes_no("mix_scores", "yes: all heads are mixed before the softmax too")},
    .probes = {{"convolved", "b h i j", "scores mixed with those of neighbouring queries and keys",
                   "A_ij = sum theta[a, c] S_{i-cq+1+a, j-ck/2+c}  (MTA)"},
        {"mixed_scores", "b h i j", "scores mixed with those of other heads", "A_o + sum_c m_oc A_c  (MTA)"},
        {"softmax", "b h i j", "the pattern of each head, before mixing", "softmax over j of A_ij  (MTA)",
            ProbeInfo::unit},
        {"convolved_pattern", "b h i j", "patterns mixed with those of neighbours", "conv(P), 0 where masked  (MTA)"}},
    .variants = {"mta(queries=2, keys=3)", "mta(queries=1, keys=3, heads=1)",
        "mta(queries=3, keys=1, convolve=both, mix_scores=yes)", "mta(queries=2, keys=3, heads=1, convolve=pattern)",
        "mta(queries=2, keys=3) + rope"},
    .make = make_scheme<Mta>}};

}  // namespace
}  // namespace whence

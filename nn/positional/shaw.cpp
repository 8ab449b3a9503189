// Relative representations: keys and values get a vector for the clipped distance.
//                                                                              Shaw et al. 2018, arXiv:1803.02155
//   c_ij = clip(j - i, -K, K) + K                       2K + 1 rows; a causal mask leaves 0 ... K
//   A_ij = q_i.(k_j + a^K[c_ij]) / sqrt(d)
//   o_i  = sum_j P_ij (v_j + a^V[c_ij])
// No [i j d] is computed: the key term is read from q a^K' by c, and for the values P is summed into 2K + 1 bins.
// Distances beyond K share a row, so its gradient is the sum over all of them.
#include <cmath>

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/attention/distances.h"
#include "nn/attention/tile_terms.h"
#include "nn/scheme.h"

namespace whence {
namespace {

class Shaw final : public PositionalScheme, public BiasesScores, public MixesValues, public RunsInTiles {
 public:
  explicit Shaw(const SchemeArguments& arguments)
      : clip_(arguments.integer("clip")),
        keys_(table("key_table", arguments.sizes().head_dim())),
        values_(table("value_table", arguments.sizes().head_dim())) {}

  Claims claims() const override { return {.shift_invariant = true, .whole_positions = true}; }

  // q.a^K[c_ij] / sqrt(d), [b h i j]. Uses the unrotated query, because a rotated one depends on its position.
  Tensor bias(const AttendContext& context) const override {
    const Tensor by_row = matmul(context.unrotated_query, transpose(keys_), context.scale);  // [b h i 2K+1]
    return probe("relative_logit", gather(by_row, -1, rows_of(context)));                    // [b h i j]
  }

  // sum_j P_ij a^V[c_ij], [b h i d]
  Tensor mix(const Tensor& pattern, const AttendContext& context) const override {
    const Tensor by_row =
        probe("pattern_by_distance", sum_by_index(pattern, rows_of(context), 2 * clip_ + 1));  // [b h i 2K+1]
    return probe("relative_value", matmul(by_row, values_));                                   // [b h i d]
  }

 private:
  // [2K+1, d], initially uniform as in Glorot and Bengio
  Tensor table(const char* name, index_t head_dim) {
    const double limit = std::sqrt(6.0 / static_cast<double>(2 * clip_ + 1 + head_dim));
    return param(name, {2 * clip_ + 1, head_dim}, Init::uniform(-limit, limit));
  }
  index_t row_of(index_t distance) const { return std::clamp(-distance, -clip_, clip_) + clip_; }
  // c_ij, [1|b 1 i j]
  Tensor rows_of(const AttendContext& context) const {
    return index_of_steps("shaw", context, [&](index_t distance) { return row_of(distance); });
  }

  // ---- The same in tiles: readers may stop here. ----
  // One row of keys for each distance, equal for clipped ones; values by the bins of P.
  void add_to_tiles(TileTerms& terms, const AttendContext& context) const override {
    if (context.positions.divisor != 1) return terms.refuse("shaw at stretched positions given; whole steps required");
    const Distances* const distances = terms.read(whole_distances(context));
    if (!distances) return;
    const Tensor row = context.on_device(of_each<index_t>(
        distances->values, [&](double distance) { return row_of(static_cast<index_t>(distance)); }));  // c, [n]
    const Tensor keys = take_rows(keys_, row);                                                         // [n d]
    terms.add(TiledOperands::relative_query, context.unrotated_query, context.scale);
    terms.add(TiledOperands::relative_keys, unsqueeze(keys, 0));
    terms.add_bins(row, values_);
  }

  index_t clip_;
  Tensor keys_, values_;  // a^K, a^V: [2K+1, d], shared by the heads
};

const RegisterScheme registered{{.name = "shaw",
    .aliases = {"relative_key_value"},
    .title = "relative representations of keys and values",
    .paper = "Shaw et al. 2018, arXiv:1803.02155",
    .equation =
        "A_ij = q_i.(k_j + a^K[c_ij]) / sqrt(d),  o_i = sum_j P_ij (v_j + a^V[c_ij]),  c_ij = clip(j - i, -K, K)",
    .options = {option::integer("clip", 16, {1, 1e6}, "K: distances beyond it count as K")},
    .knob = "relative_logit",
    .picture = SchemeInfo::distance,
    .probes = {{"relative_logit", "b h i j", "the distance's term of the logit",
                   "q_i.a^K[c_ij] / sqrt(d)  (Shaw et al., Eq. 4)"},
        {"pattern_by_distance", "b h i n", "sum of the pattern at each clipped distance", "sum_j P_ij [c_ij = n]",
            ProbeInfo::unit},
        {"relative_value", "b h i d", "the distances' term of the output",
            "sum_j P_ij a^V[c_ij]  (Shaw et al., Eq. 3)"}},
    .variants = {"shaw(clip=2)"},
    .make = make_scheme<Shaw>}};

}  // namespace
}  // namespace whence

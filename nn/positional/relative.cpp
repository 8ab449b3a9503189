// Relative positions on the key side, as in the baselines of CoPE.
//                                                                     Golovneva et al. 2024, arXiv:2405.18719
//   A_ij = q_i.(k_j + r[i - j]) / sqrt(d)                                                                  (Eq. 1)
// Distances without a row add nothing. With capped=yes they read the last row, which then gets the gradient of all of
// them.
// One table serves all heads and, as in the authors' code, all layers.
#include <cmath>

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/attention/distances.h"
#include "nn/attention/tile_terms.h"
#include "nn/scheme.h"

namespace whence {
namespace {

class Relative final : public PositionalScheme, public BiasesScores, public RunsInTiles {
 public:
  explicit Relative(const SchemeArguments& arguments)
      : capped_(arguments.yes("capped")),
        table_(param("table", {arguments.or_length("rows", "rows"), arguments.sizes().head_dim()},
            Init::normal(0, 1 / std::sqrt(static_cast<double>(arguments.sizes().head_dim()))))) {}

  Claims claims() const override { return {.causal_only = true, .shift_invariant = true, .whole_positions = true}; }

  // q.r[i - j] / sqrt(d), [b h i j]. Uses the unrotated query, because a rotated one depends on its position.
  Tensor bias(const AttendContext& context) const override {
    if (!context.causal)
      fail("relative",
          "attention without a causal mask given; its table has no rows for keys on the right; use shaw instead");
    const Tensor row = index_of_steps("relative", context, [&](index_t n) { return row_of(n); });  // [1|b 1 i j]
    const Tensor by_row = matmul(context.unrotated_query, transpose(table_), context.scale);       // [b h i n]
    Tensor logit = gather(by_row, -1, row);                                                        // [b h i j]
    if (!capped_) logit = masked(logit, of_each_distance<bool>(context, [&](double n) { return has_row(n); }));
    return probe("relative_logit", logit);
  }

 private:
  index_t row_of(index_t distance) const { return std::clamp<index_t>(distance, 0, table_.size(0) - 1); }
  bool has_row(double distance) const { return capped_ || distance < static_cast<double>(table_.size(0)); }

  // ---- The same in tiles: readers may stop here. ----
  void add_to_tiles(TileTerms& terms, const AttendContext& context) const override {
    if (!context.causal || context.positions.divisor != 1)
      return terms.refuse("relative without a causal mask or at stretched positions given; neither required");
    const Distances* const distances = terms.read(whole_distances(context));
    if (!distances) return;
    const Tensor row = of_each<index_t>(distances->values, [&](double n) { return row_of(static_cast<index_t>(n)); });
    const Tensor there = of_each<bool>(distances->values, [&](double n) { return has_row(n); });
    const Tensor keys = masked(
        take_rows(table_, context.on_device(row)), unsqueeze(context.on_device(there), 1));  // r by distance, [n d]
    terms.add(TiledOperands::relative_query, context.unrotated_query, context.scale);
    terms.add(TiledOperands::relative_keys, unsqueeze(keys, 0));
  }

  bool capped_;
  Tensor table_;  // r: [n, d]
};

const RegisterScheme registered{{.name = "relative",
    .title = "relative positions on the key side",
    .paper = "Golovneva et al. 2024, arXiv:2405.18719, Eq. 1",
    .equation = "A_ij = q_i.(k_j + r[i - j]) / sqrt(d)",
    .options = {option::integer("rows", 0, {0, 1e9}, "distances in the table; 0: as many as the training length"),
        option::yes_no("capped", "yes: distances beyond the table read its last row"),
        option::words("table", {"shared", "per_layer"}, "one for all layers, or one for each")},
    .knob = "relative_logit",
    .picture = SchemeInfo::distance,
    .probes = {{"relative_logit", "b h i j", "the distance's term of the logit",
        "q_i.r[i - j] / sqrt(d)  (CoPE, Eq. 1)"}},
    .shared = [](const SchemeArguments& arguments) { return arguments.word("table") == "shared"; },
    .variants = {"relative(rows=3)", "relative(rows=3, capped=yes)"},
    .make = make_scheme<Relative>}};

}  // namespace
}  // namespace whence

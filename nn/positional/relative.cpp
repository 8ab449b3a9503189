// Relative positions on the key side, as the baselines of CoPE have them.
//                                                                     Golovneva et al. 2024, arXiv:2405.18719
//   A_ij = q_i.(k_j + r[i - j]) / sqrt(d)                                                                  (Eq. 1)
// Distances without a row add nothing, or, capped, read the last row, which then gathers the gradient of all of them.
// One table serves all heads and, as in the authors' code, all layers.
#include <cmath>

#include "autograd/inspect/probe.h"
#include "autograd/ops.h"
#include "nn/attention/distances.h"
#include "nn/attention/tiles.h"
#include "nn/scheme.h"

namespace whence {
namespace {

class Relative final : public PositionalScheme, public BiasesScores, public RunsInTiles {
 public:
  Relative(index_t rows, index_t head_dim, bool capped)
      : capped_(capped),
        table_(param("table", {rows, head_dim}, Init::normal(0, 1 / std::sqrt(static_cast<double>(head_dim))))) {}

  Claims claims() const override { return {.causal_only = true, .shift_invariant = true, .whole_positions = true}; }

  // q.r[i - j] / sqrt(d), [b h i j]. The query is the unrotated one: a rotated one knows where it stands.
  Tensor bias(const AttendContext& context) const override {
    if (!context.causal)
      fail("relative", "attention without a causal mask given; its table knows no keys on the right; use shaw instead");
    const index_t last = table_.size(0) - 1;
    const Tensor row = index_of_steps(
        "relative", context, [&](index_t distance) { return std::clamp<index_t>(distance, 0, last); });  // [1|b 1 i j]
    const Tensor by_row = matmul(context.unrotated_query, transpose(table_), context.scale);             // [b h i n]
    const Tensor logit = gather(by_row, -1, row);                                                        // [b h i j]
    return probe("relative_logit", capped_ ? logit : masked(logit, has_row(context)));
  }

  bool add_to_tiles(TileTerms& terms, const AttendContext& context) const override {
    const std::optional<Distances> distances = whole_distances(context);
    if (!context.causal || !distances || context.positions.divisor != 1) return false;
    const index_t count = distances->values.size(0), last = table_.size(0) - 1;
    const Tensor row = Tensor::empty({count}, DType::i64), there = Tensor::empty({count, 1}, DType::boolean);
    for (index_t n = 0; n < count; ++n) {
      const index_t distance = static_cast<index_t>(distances->values.data<double>()[n]);
      row.data<index_t>()[n] = std::clamp<index_t>(distance, 0, last);
      there.data<bool>()[n] = capped_ || distance <= last;
    }
    const Tensor keys =
        masked(take_rows(table_, context.on_device(row)), context.on_device(there));  // r by distance, [n d]
    return terms.add_by_row_and_distance(*distances, context.unrotated_query, unsqueeze(keys, 0), context.scale);
  }

 private:
  // bool [1|b 1 i j]
  Tensor has_row(const AttendContext& context) const {
    const double rows = static_cast<double>(table_.size(0));
    return of_each_distance<bool>(context, [rows](double distance) { return distance < rows; });
  }

  bool capped_;
  Tensor table_;  // r: [n, d]
};

const RegisterScheme registered{{.name = "relative",
    .title = "relative positions on the key side",
    .paper = "Golovneva et al. 2024, arXiv:2405.18719, Eq. 1",
    .equation = "A_ij = q_i.(k_j + r[i - j]) / sqrt(d)",
    .options = {option::integer("rows", 0, {0, 1e9}, "distances in the table; 0: as many as the training length"),
        option::yes_no("capped", "whether distances beyond the table read its last row"),
        option::words("table", {"shared", "per_layer"}, "one for all layers, or one for each")},
    .probes = {{"relative_logit", "b h i j", ProbeInfo::Scale::diverging, "what the distance adds to the logit",
        "q_i.r[i - j] / sqrt(d)  (CoPE, Eq. 1)"}},
    .shared = [](const SchemeArguments& arguments) { return arguments.word("table") == "shared"; },
    .variants = {"relative(rows=3)", "relative(rows=3, capped=yes)"},
    .make = [](const SchemeArguments& arguments) -> std::unique_ptr<PositionalScheme> {
      const index_t given = arguments.integer("rows"), rows = given ? given : arguments.sizes().length;
      if (rows < 1)
        throw InputError("relative: no rows and a model without a training length given; one of them required");
      return std::make_unique<Relative>(rows, arguments.sizes().head_dim(), arguments.yes("capped"));
    }}};

}  // namespace
}  // namespace whence

// Relative positions on the key side, as the baselines of CoPE have them.
//                                                                     Golovneva et al. 2024, arXiv:2405.18719
//   A_ij = q_i.(k_j + r[i - j]) / sqrt(d)                                                                  (Eq. 1)
// Distances without a row add nothing, or, capped, read the last row, which then gathers the gradient of all of them.
// One table serves all heads and, as in the authors' code, all layers.
#include <cmath>

#include "autograd/inspect/probe.h"
#include "nn/attention/tiles.h"
#include "nn/positional/distances.h"
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
  Tensor bias(const AttendContext& at) const override {
    if (!at.causal)
      fail("relative", "attention without a causal mask given; its table knows no keys on the right; use shaw instead");
    const index_t last = table_.size(0) - 1;
    const Tensor row = index_of_steps(
        "relative", at, [&](index_t distance) { return std::clamp<index_t>(distance, 0, last); });  // [1|b 1 i j]
    const Tensor by_row = matmul(at.unrotated_query, transpose(table_), at.scale);                  // [b h i n]
    const Tensor logit = gather(by_row, -1, row);                                                   // [b h i j]
    return probe("relative_logit", capped_ ? logit : masked(logit, has_row(at)));
  }

  bool add_to_tiles(TileTerms& terms, const AttendContext& at) const override {
    const std::optional<DistanceSteps> steps = distance_steps(at);
    if (!at.causal || !steps || at.positions.divisor != 1) return false;
    const index_t count = steps->values.size(0), last = table_.size(0) - 1;
    const Tensor row = Tensor::empty({count}, DType::i64), there = Tensor::empty({count, 1}, DType::boolean);
    for (index_t n = 0; n < count; ++n) {
      const index_t distance = static_cast<index_t>(steps->values.data<double>()[n]);
      row.data<index_t>()[n] = std::clamp<index_t>(distance, 0, last);
      there.data<bool>()[n] = capped_ || distance <= last;
    }
    const Tensor keys = masked(take_rows(table_, at.here(row)), at.here(there));  // r by distance, [n d]
    return terms.add_by_row_and_distance(*steps, at.unrotated_query, unsqueeze(keys, 0), at.scale);
  }

 private:
  // bool [1|b 1 i j]
  Tensor has_row(const AttendContext& at) const {
    const double rows = static_cast<double>(table_.size(0));
    return of_each_distance<bool>(at, [rows](double distance) { return distance < rows; });
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

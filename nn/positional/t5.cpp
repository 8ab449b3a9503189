// T5's bias: one number per head and bucket of distances.                         Raffel et al. 2020, arXiv:1910.10683
//   A_ij = S_ij + c tau[bucket(i - j), h],   c = 1, or sqrt(d) as in GPT-NeoX
//   bucket(n) = n                                                            n < E = N/2
//             = min(N - 1, E + floor(ln(n/E) / ln(D/E) (N - E)))             otherwise: distances from D on share the
//             last
// Causal: n = max(i - j, 0). Not causal: N/2 buckets for |i - j| to the left and N/2 for keys to the right.
#include "autograd/ops.h"
#include "nn/attention/tile_terms.h"

namespace whence {
namespace {

struct Buckets {
  index_t count;        // N
  double max_distance;  // D

  // Returns the bucket of n >= 0 among `available`. In double, so that an integer logarithm keeps its bucket.
  index_t of(double n, index_t available) const {
    const auto exact = static_cast<double>(available / 2);
    if (n < exact) return static_cast<index_t>(n);
    const double steps =
        std::log(n / exact) / std::log(max_distance / exact) * static_cast<double>(available - available / 2);
    const double whole = std::fabs(steps - std::round(steps)) < 1e-9 ? std::round(steps) : std::floor(steps);
    return static_cast<index_t>(std::min(exact + whole, static_cast<double>(available - 1)));
  }
  index_t of_causal(double distance) const { return of(std::max(distance, 0.0), count); }
  index_t of_both_sides(double distance) const {
    return of(std::fabs(distance), count / 2) + (distance < 0 ? count / 2 : 0);
  }
};

class T5 final : public PositionalScheme, public ReadsByDistance {
 public:
  explicit T5(const SchemeArguments& arguments)
      : buckets_{arguments.integer("buckets"), arguments.number("max_distance")},
        factor_(scaled(arguments) ? std::sqrt(static_cast<double>(arguments.sizes().head_dim())) : 1),
        table_(param("table", {buckets_.count, arguments.sizes().heads}, Init::normal(0, deviation(arguments)))) {
    if (2 * buckets_.max_distance <= static_cast<double>(buckets_.count)) {
      throw InputError("t5: max_distance ", buckets_.max_distance, " with ", buckets_.count,
          " buckets given; more than ", buckets_.count / 2,
          " required, as the first half of the buckets has one distance each");
    }
  }

  Claims claims() const override { return {.shift_invariant = true}; }

  std::optional<Tensor> table(const Tensor& distances, const AttendContext& context) const override {
    const Tensor bucket = of_each<index_t>(distances, [&](double distance) {  // [n]
      return context.causal ? buckets_.of_causal(distance) : buckets_.of_both_sides(distance);
    });
    return cast(transpose(take_rows(table_ * factor_, context.on_device(bucket))), context.dtype());
  }

 private:
  static bool scaled(const SchemeArguments& arguments) { return arguments.word("scale") == "head"; }
  // Xavier's deviation if sqrt(d) multiplies, as in GPT-NeoX.
  static double deviation(const SchemeArguments& arguments) {
    const index_t rows = arguments.integer("buckets"), heads = arguments.sizes().heads;
    return scaled(arguments) ? std::sqrt(2.0 / static_cast<double>(rows + heads)) : 0.02;
  }

  Buckets buckets_;
  double factor_;  // c
  Tensor table_;   // tau: [N, h]
};

const RegisterScheme registered{{.name = "t5",
    .aliases = {"rpe"},
    .title = "T5's bias by buckets of distances",
    .paper = "Raffel et al. 2020, arXiv:1910.10683",
    .equation = "A_ij = S_ij + tau[bucket(i - j), h]",
    .options = {option::integer("buckets", 32, {4, 1e6}, "rows of the table"),
        option::number("max_distance", 128, {3, 1e9}, "distance from which on the last bucket is used"),
        option::words("scale", {"1", "head"}, "factor of the bias: 1, or head: sqrt(d)"),
        option::words("table", {"shared", "per_layer"}, "one for all layers, or one for each")},
    .knob = "bias",
    .picture = SchemeInfo::distance,
    .probes = {ReadsByDistance::bias_probe("c tau[bucket(i - j), h],  c = 1 or sqrt(d)")},
    .shared = [](const SchemeArguments& arguments) { return arguments.word("table") == "shared"; },
    .variants = {"t5(buckets=4, max_distance=6)", "t5(buckets=8, max_distance=6, scale=head, table=per_layer)"},
    .make = make_scheme<T5>}};

}  // namespace
}  // namespace whence

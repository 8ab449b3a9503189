// FIRE: a small network of the distance relative to the query's position.          Li et al. 2024, arXiv:2310.04418
//   psi(y) = ln(|c y| + 1),   Lambda = |lambda L0|
//   x_ij   = psi(i - j) / (psi(max(i, Lambda)) + 1e-6)       i: the query's position, from 0
//   b_ij   = W2 f(W1 x_ij + b1) + b2                         one number per head
// lambda has a gradient only from rows i < Lambda, half of it at i = Lambda: longer runs teach it little.
#include <algorithm>
#include <limits>

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "nn/attention/tile_terms.h"
#include "nn/layers/layers.h"
#include "tensor/raw.h"

namespace whence {
namespace {

class Fire final : public PositionalScheme, public ReadsByDistance {
 public:
  explicit Fire(const SchemeArguments& arguments)
      : init_length_(arguments.number("init_length") != 0
                         ? arguments.number("init_length")
                         : static_cast<double>(arguments.or_length("init_length", "init_length")) / 2),
        leaky_(arguments.word("activation") == "leaky_relu"),
        distance_scale_(param("distance_scale", {}, Init::constant(0.1), arguments.yes("decay"))),
        threshold_scale_(param("threshold_scale", {}, Init::constant(1), arguments.yes("decay"))),
        in_(Linear::as_pytorch(1, arguments.integer("width"))),
        out_(Linear::as_pytorch(arguments.integer("width"), arguments.sizes().heads)) {
    child("in", in_);
    child("out", out_);
  }

  Claims claims() const override { return {}; }

  // [1|b h i j]
  Tensor bias(const AttendContext& context) const override {
    const Tensor x =
        probe("relative_distance", cast(relative_distance(context), context.content_scores.dtype()));  // [1|b 1 i j]
    return probe(
        "bias", permute(network(reshape(x, {x.size(0), x.size(2), x.size(3), 1})), {0, 3, 1, 2}));  // [1|b h i j]
  }

  // If every row is before Lambda, all rows share one normaliser, and the bias is a function of the distance. On a GPU
  // reading Lambda would wait for the device.
  std::optional<Tensor> table(const Tensor& distances, const AttendContext& context) const override {
    if (context.device.is_gpu()) return std::nullopt;
    const std::vector<double> rows = context.positions.query.to_vector();
    const Tensor lambda = threshold();
    if (*std::max_element(rows.begin(), rows.end()) >= lambda.item()) return std::nullopt;
    const Tensor x = psi(cast(context.on_device(distances), lambda.dtype())) / (psi(lambda) + 1e-6);  // [n]
    return transpose(network(reshape(cast(x, context.dtype()), {-1, 1})));                            // [h n]
  }

 private:
  // x_ij, [1|b 1 i j]
  Tensor relative_distance(const AttendContext& context) const {
    const DType dtype = compute_dtype(distance_scale_.dtype());
    return psi(cast(distance_of_pairs(context), dtype)) / normaliser(context);
  }

  // [1|b 1 i 1]
  Tensor normaliser(const AttendContext& context) const {
    // Padding on the left has negative positions, and so counts as row 0.
    const Tensor row = cast(context.on_device(rows_of(context)), compute_dtype(distance_scale_.dtype()));
    return psi(maximum(row, threshold())) + 1e-6;
  }

  // Returns Lambda.
  Tensor threshold() const {
    return abs(cast(threshold_scale_, compute_dtype(threshold_scale_.dtype())) * init_length_);
  }

  // Returns W2 f(W1 x + b1) + b2: [... 1] -> [... h].
  Tensor network(const Tensor& x) const {
    const Tensor before = in_(x);
    return out_(probe("mlp_hidden", leaky_ ? leaky_relu(before) : relu(before)));
  }

  // The network at x >= 0 as lines: slopes[h, n] x + offsets[h, n] for begins[n] < x <= begins[n + 1]. Unit k turns on
  // or off at its kink -b1_k / w1_k and is linear on either side. Kinks get no gradient, because the function is
  // continuous there.
  struct BrokenLine {
    Tensor begins, slopes, offsets;  // [n], [h n]
  };
  // Compares all kinks with each other, because sorting on a GPU would wait for it.
  BrokenLine broken_line(DType dtype) const {
    const index_t units = in_.bias().size(0);
    Tensor begins, passed;  // [n]; [k n]: the slope of f at unit k on piece n
    {
      const NoGrad values_only;
      constexpr double infinity = std::numeric_limits<double>::infinity();
      const auto full = [&](const Shape& shape, double x) {
        return Tensor::full(shape, x, DType::f64, in_.bias().device());
      };
      const auto reaches = [&](const Tensor& a, const Tensor& b) {  // 1 where a >= b, else 0
        return raw::binary("fire", functions::GreaterEqual{}, a, b);
      };
      const Tensor w = cast(in_.weight(), DType::f64), b = unsqueeze(cast(in_.bias(), DType::f64), 1),  // [k 1]
          none = full({1, 1}, 0), at = -(b / w), counts = cast(reaches(at, none) * abs(w), DType::boolean);
      const Tensor kinks = masked(at, counts, -infinity), later = masked(at, counts, infinity);
      const Tensor up_to = sum(reaches(later, transpose(later)), {1}, true),  // rank of each kink
          place = cumulative_sum(full({1, units}, 1));
      const Tensor sorted = raw::reduce(Reduction::maximum,
          masked(expand(-later, {units, units}), cast(reaches(up_to, place), DType::boolean), -infinity), {0}, true);
      begins = concat_along(1, {full({1, 1}, -1), -sorted});  // the first piece begins below 0
      const Tensor rises = 1.0 - reaches(none, w * 1e300 + b);
      passed = clamp(abs(rises + reaches(begins, kinks) - 1.0), leaky_ ? 0.01 : 0, 1);
    }
    const Tensor f = cast(passed, dtype), w2 = cast(out_.weight(), dtype);  // [h k]
    const auto through = [&](const Tensor& numbers) {
      return matmul(w2 * reshape(cast(numbers, dtype), {1, units}), f);
    };
    return {reshape(cast(begins, dtype), {-1}), through(in_.weight()),
        through(in_.bias()) + reshape(cast(out_.bias(), dtype), {-1, 1})};
  }

  Tensor psi(const Tensor& y) const { return log1p(abs(y * cast(distance_scale_, y.dtype()))); }

  // Returns the positions of the queries, [1|b 1 i 1].
  static Tensor rows_of(const AttendContext& context) {
    const Tensor& query = context.positions.query;
    return reshape(query, {query.rank() == 2 ? query.size(0) : 1, 1, query.size(-1), 1});
  }

  // ---- The same in tiles: readers may stop here. ----
  std::string only_on_cpu() const override { return "a piecewise term outside a head mix"; }
  // Rows after Lambda: the network of one number is a broken line for each head.
  void add_to_tiles(TileTerms& terms, const AttendContext& context) const override {
    const Distances* const distances = terms.read(whole_distances(context));
    if (!distances) return;
    if (const std::optional<Tensor> numbers = table(distances->values, context))
      return terms.add(TiledOperands::distance_table, *numbers);
    const Tensor row = reciprocal(normaliser(context));                                    // [1|b 1 i 1]
    const Tensor distance = psi(cast(context.on_device(distances->values), row.dtype()));  // [n]
    const DType exact = compute_dtype(context.dtype());
    const BrokenLine line = broken_line(exact);
    terms.add(TiledOperands::piece_distance, cast(distance, exact));
    terms.add(TiledOperands::piece_row, expand(reshape(cast(row, exact), {row.size(0), 1, row.size(2)}),
                                            {context.query.size(0), context.query.size(1), context.query.size(2)}));
    terms.add(TiledOperands::piece_begins, line.begins);
    terms.add(TiledOperands::piece_slopes, line.slopes), terms.add(TiledOperands::piece_offsets, line.offsets);
  }

  double init_length_;  // L0
  bool leaky_;
  Tensor distance_scale_;   // c
  Tensor threshold_scale_;  // lambda
  Linear in_, out_;         // W1 b1, W2 b2
};

const RegisterScheme registered{{.name = "fire",
    .title = "functional interpolation of relative distances",
    .paper = "Li et al. 2024, arXiv:2310.04418",
    .equation = "A_ij = S_ij + MLP_h(ln(|c (i - j)| + 1) / ln(|c max(i, |lambda L0|)| + 1))",
    .options = {option::integer("width", 32, {1, 65536}, "hidden units of the network"),
        option::number("init_length", 512, {0, 1e9},
            "L0: rows before lambda L0 share a normaliser; 0: half the training length, as in the DAPE papers' code"),
        option::yes_no("decay", "yes: weight decay shrinks c and lambda, as in the DAPE papers' runs"),
        option::words("activation", {"relu", "leaky_relu"}, "f; leaky_relu has slope 0.01")},
    .knob = "bias",
    .picture = SchemeInfo::distance,
    .probes = {{"relative_distance", "b o i j", "the distance, relative to the query's position",
                   "psi(i - j) / (psi(max(i, Lambda)) + 1e-6)  (FIRE)", ProbeInfo::unit},
        {"mlp_hidden", "b i j n", "hidden units of the network", "f(W1 x_ij + b1)"},
        {"bias", "b h i j", "the distance's term of the logit", "b_ij = W2 f(W1 x_ij + b1) + b2"}},
    .variants = {"fire(width=4, init_length=3, activation=leaky_relu)", "fire(width=4, init_length=0, decay=yes)"},
    .make = make_scheme<Fire>}};

}  // namespace
}  // namespace whence

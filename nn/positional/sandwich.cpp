// Sandwich: the inner product of two sinusoidal embeddings as a bias. It depends only on the distance and has no
// parameters.                                                                     Chi et al. 2023, arXiv:2212.10356
//   b_ij = (sum_{m=1..D/2} cos(n / 10000^(2m/D)) - D/2) / (8 (h + 1) / H),  h = 0 ... H - 1,  n = |i - j|
// 0 at n = 0, then it falls roughly like a logarithm.
#include "autograd/ops.h"
#include "nn/attention/tile_terms.h"
#include "nn/positional/waves.h"

namespace whence {
namespace {

class Sandwich final : public PositionalScheme, public ReadsByDistance {
 public:
  explicit Sandwich(const SchemeArguments& arguments)
      : dim_(arguments.integer("dim")), heads_(arguments.sizes().heads) {
    if (dim_ % 2)
      throw InputError("sandwich: dim ", dim_, " given; an even number required, as sines and cosines come in pairs");
  }

  Claims claims() const override { return {.shift_invariant = true}; }

  // Computed in double for any dtype of the model, then rounded once.
  std::optional<Tensor> table(const Tensor& distances, const AttendContext& context) const override {
    return context.table_once(to_text("sandwich ", dim_, ' ', heads_), distances, context.dtype(), [&] {
      std::vector<double> falls, rows;
      for (const double n : distances.to_vector()) falls.push_back(of_distance(n));
      for (index_t h = 0; h < heads_; ++h)
        for (const double fall : falls)
          rows.push_back(fall * static_cast<double>(heads_) / (8 * static_cast<double>(h + 1)));
      return Tensor::of(rows, {heads_, distances.size(0)}, context.dtype());
    });
  }

 private:
  // sum_m (cos(n w_m) - 1)
  double of_distance(double n) const {
    double total = 0;
    for (index_t m = 1; m <= dim_ / 2; ++m) total += std::cos(n * wave_frequency(m, dim_, 10000)) - 1;
    return total;
  }

  index_t dim_, heads_;
};

const RegisterScheme registered{{.name = "sandwich",
    .title = "a bias from sinusoidal embeddings",
    .paper = "Chi et al. 2023, arXiv:2212.10356",
    .equation = "A_ij = S_ij + (sum_{m=1..D/2} cos(|i - j| / 10000^(2m/D)) - D/2) H / (8 (h + 1))",
    .options = {option::integer("dim", 128, {2, 65536}, "D, the width of the embedding, an even number")},
    .knob = "bias",
    .picture = SchemeInfo::distance,
    .probes = {ReadsByDistance::bias_probe("(sum_m cos(|i - j| / 10000^(2m/D)) - D/2) H / (8 (h + 1))")},
    .variants = {"sandwich(dim=8)"},
    .make = make_scheme<Sandwich>}};

}  // namespace
}  // namespace whence

// Sinusoidal absolute positions.   w_m = base^(-2m/c), m = 0 ... c/2 - 1
//   interleaved (Vaswani et al.):  PE[t, 2m] = sin(t w_m),  PE[t, 2m+1] = cos(t w_m)
//   concat (Transformer-XL, NeoX): PE[t, m]  = sin(t w_m),  PE[t, c/2 + m] = cos(t w_m)
#include <cmath>

#include "autograd/ops.h"
#include "nn/scheme.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

class Sinusoidal final : public PositionalScheme, public EmbedsTokens {
 public:
  Sinusoidal(bool interleaved, double base) : interleaved_(interleaved), base_(base) {}

  Claims claims() const override { return {}; }

  // x:[b t c]   ->   x + PE[t]
  Tensor embed(const Tensor& x, const Positions& positions) const override {
    const index_t half = x.size(-1) / 2;
    const std::vector<double> places = positions.query.to_vector();
    std::vector<double> table;
    for (const double t : places) {
      for (index_t column = 0; column < 2 * half; ++column) {
        const index_t m = interleaved_ ? column / 2 : column % half;
        const bool is_sine = interleaved_ ? column % 2 == 0 : column < half;
        const double angle = t * std::pow(base_, -static_cast<double>(m) / static_cast<double>(half));
        table.push_back(is_sine ? std::sin(angle) : std::cos(angle));
      }
    }
    const bool per_sequence = positions.query.rank() == 2;
    const Shape shape = per_sequence ? x.shape() : Shape{x.size(1), 2 * half};  // [b t c] or [t c]
    const Tensor added = Tensor::of(table, shape, x.dtype());
    return x + raw::to_device(added, x.device());
  }

 private:
  bool interleaved_;
  double base_;
};

const RegisterScheme registered{{.name = "sinusoidal",
    .aliases = {"sin_cos"},
    .title = "sinusoidal absolute positions",
    .paper = "Vaswani et al. 2017, arXiv:1706.03762",
    .equation = "h_t = E[x_t] + PE[t],  PE = sin and cos of t base^(-2m/c)",
    .options = {option::words("layout", {"interleaved", "concat"}, "order of sines and cosines"),
        option::number("base", 10000, {1, 1e12}, "wavelengths run from 2 pi to 2 pi base")},
    .shared = [](const SchemeArguments&) { return true; },
    .make = [](const SchemeArguments& arguments) -> std::unique_ptr<PositionalScheme> {
      if (arguments.sizes().dim % 2)
        throw InputError("sinusoidal: model dim ", arguments.sizes().dim, " given; an even one required");
      return std::make_unique<Sinusoidal>(arguments.word("layout") == "interleaved", arguments.number("base"));
    }}};

}  // namespace
}  // namespace whence

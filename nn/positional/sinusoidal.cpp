// Sinusoidal absolute positions.   w_m = base^(-2m/c), m = 0 ... c/2 - 1
//   interleaved (Vaswani et al.):  PE[t, 2m] = sin(t w_m),  PE[t, 2m+1] = cos(t w_m)
//   concat (Transformer-XL, NeoX): PE[t, m]  = sin(t w_m),  PE[t, c/2 + m] = cos(t w_m)
#include "autograd/ops.h"
#include "nn/positional/waves.h"
#include "nn/scheme.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

class Sinusoidal final : public PositionalScheme, public EmbedsTokens {
 public:
  explicit Sinusoidal(const SchemeArguments& arguments)
      : interleaved_(arguments.word("layout") == "interleaved"), base_(arguments.number("base")) {
    if (arguments.sizes().dim % 2)
      throw InputError("sinusoidal: model dim ", arguments.sizes().dim, " given; an even one required");
  }

  Claims claims() const override { return {}; }

  // x:[b t c]   ->   x + PE[t]
  Tensor embed(const Tensor& x, const Positions& positions) const override {
    const std::vector<double> table = sinusoids(positions.query.to_vector(), x.size(-1), base_, interleaved_);
    const bool per_sequence = positions.query.rank() == 2;
    const Shape shape = per_sequence ? x.shape() : Shape{x.size(1), x.size(2)};  // [b t c] or [t c]
    return x + raw::to_device(Tensor::of(table, shape, x.dtype()), x.device());
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
    .make = make_scheme<Sinusoidal>}};

}  // namespace
}  // namespace whence

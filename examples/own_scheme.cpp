// A positional scheme of your own, with its checks: a bias that falls with the square of the distance.
//   A_ij = S_ij - r_h (i - j)^2,   r_h >= 0 learned, one for each head          dr_h = -sum (i - j)^2 dA_ij
#include <iostream>

#include "autograd/backward.h"
#include "autograd/check/gradcheck.h"
#include "autograd/ops.h"
#include "nn/attention/tile_terms.h"
#include "nn/decoding.h"
#include "tensor/random.h"

using namespace whence;

class Gaussian final : public PositionalScheme, public ReadsByDistance {
 public:
  explicit Gaussian(const SchemeArguments& arguments)
      : rate_(param("rate", {arguments.sizes().heads}, Init::constant(arguments.number("rate")), false, {.low = 0})) {}

  Claims claims() const override { return {.shift_invariant = true}; }

  // distances [n] -> the bias of each head at each distance, [h n], for all three executors of attention.
  std::optional<Tensor> table(const Tensor& distances, const AttendContext& context) const override {
    const Tensor squares = cast(context.on_device(square(distances)), context.dtype());
    return unsqueeze(rate_, 1) * unsqueeze(squares, 0) * -1.0;
  }

 private:
  Tensor rate_;  // r, [h]
};

const RegisterScheme registered{{.name = "gaussian",
    .title = "a bias by the squared distance",
    .paper = "one's own",
    .equation = "A_ij = S_ij - r_h (i - j)^2",
    .options = {option::number("rate", 0.1, {0, 100}, "of all heads at first")},
    .probes = {ReadsByDistance::bias_probe("-r_h (i - j)^2")},
    .make = make_scheme<Gaussian>}};

double largest(const Tensor& difference) { return maximum_along(reshape(abs(difference), {-1}), 0).item(); }

int main() {
  // A registered scheme can be part of any sum, and the base of any scheme that takes one.
  for (const char* scheme : {"gaussian", "gaussian(rate=0.5) + rope", "dape(gaussian)", "gaussian + cope(p_max=4)"}) {
    Transformer model({.vocabulary = 7, .length = 12, .dim = 16, .layers = 2, .heads = 2, .scheme = scheme});
    model.initialise(0);
    model.to(DType::f64);
    Tensor tokens = Tensor::of({1, 5, 2, 0, 3, 6, 4, 1, 2, 5, 0, 6}, {1, 12}, DType::i64);
    std::vector<Named> parameters;
    for (const Module::Parameter& each : model.parameters()) parameters.push_back({each.path, each.tensor});
    const GradcheckReport report = gradcheck([&] { return model(tokens); }, parameters, {.differences = false});
    const Tensor whole = model(tokens);
    Decoding decoding(model, 12);  // decoded rows must equal those of the full pass, as no row sees later tokens
    double apart = 0;
    for (index_t t = 0; t < 12; ++t)
      apart = std::max(apart, largest(decoding(slice(tokens, 1, t, t + 1)) - slice(whole, 1, t, t + 1)));
    std::cout << scheme << ": " << parameters.size() << " gradients " << (report.ok() ? "right" : report.text())
              << ", decoded rows " << (apart < 1e-12 ? "equal" : "differ") << '\n';
  }
}

// Functions of one number: y = f(x),  dx = f'(x) dy.  tensor/pointwise.h lists the functions and their derivatives.
#include <cmath>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// dy g(kept), where g(kept) = f'(x) and kept is x or y.
Tensor times_derivative(Unary f, UnaryAttributes p, const Tensor& kept, const Tensor& dy) {
  const Tensor dx = Tensor::like(dy);
  kernels(dy).unary_backward(f, p, kept, dy, dx);
  return dx;
}

// The same as an op. Its own derivative needs g'; there are no derivatives beyond it.
struct UnaryBackward {
  static constexpr const char* name = "unary_backward";
  static constexpr bool broadcasts = true;
  static constexpr std::size_t factor = 0;
  static constexpr bool once = true;
  Unary f;
  UnaryAttributes p;
  struct Saved {
    SavedTensor kept, dy;
  };
  Tensor forward(Saved& saved, const Tensor& kept, const Tensor& dy) const {
    raw::require_floating(name, "dy", dy);
    raw::require_shape(name, "saved", kept, dy.shape());
    raw::require_alike(name, "saved", kept, "dy", dy);
    saved.kept = kept;
    saved.dy = dy;
    return times_derivative(f, p, kept, dy);
  }
  Grads<2> backward(const Saved& saved, const Tensor& dz, Needs<2> needs) const {
    // z = dy g(kept): d/dkept = dz dy g'(kept), d/ddy = dz g(kept)
    Grads<2> grads;
    const Tensor kept = saved.kept.get();
    if (needs[0]) {
      const Tensor slope = Tensor::like(dz);
      kernels(dz).unary_second(f, p, kept, saved.dy.get(), slope);
      grads[0] = multiply(dz, slope);
    }
    if (needs[1]) grads[1] = times_derivative(f, p, kept, dz);
    return grads;
  }
};

// The reason for a small derivative, for each Flat in order.
constexpr Stop stop_of[] = {Stop::zero, Stop::saturated, Stop::clamped, Stop::dead, Stop::leaking};

struct UnaryOp {
  Unary f;
  UnaryAttributes p;
  const char* label() const { return facts_of(f).name; }
  struct Saved {
    SavedTensor kept;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    raw::require_floating(label(), "x", x);
    const Tensor y = raw::unary(f, x, p);
    if (facts_of(f).saves == Saves::input) saved.kept = x;
    if (facts_of(f).saves == Saves::output) saved.kept.output(y);
    return y;
  }
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const {
    if (facts_of(f).saves == Saves::nothing) return {unary(f, dy, {p.a, 0})};  // affine: dx = a dy
    const Tensor kept = saved.kept.get();
    return {recording() ? unary_backward(f, kept, dy, p) : times_derivative(f, p, kept, dy)};
  }
  bool by_element(std::size_t) const { return true; }
  std::vector<Stop> stops(const Saved& saved, std::size_t) const {
    if (facts_of(f).saves == Saves::nothing) return {};
    const Tensor& kept = saved.kept.peek();
    const Stop meant = stop_of[static_cast<std::size_t>(facts_of(f).flat)];
    std::vector<Stop> all;
    for (const double slope :
        times_derivative(f, p, kept, Tensor::ones(kept.shape(), kept.dtype(), kept.device())).to_vector())
      all.push_back(std::abs(slope) < (meant == Stop::leaking ? 1 : 1e-3) ? meant : Stop::nothing);
    return all;
  }
};

}  // namespace

Tensor unary(Unary f, const Tensor& x, UnaryAttributes p, Site site) { return apply(UnaryOp{f, p}, site, x); }
Tensor unary_backward(Unary f, const Tensor& saved, const Tensor& dy, UnaryAttributes p, Site site) {
  return apply(UnaryBackward{f, p}, site, saved, dy);
}

Tensor affine(const Tensor& x, double scale, double shift, Site site) {
  return unary(functions::Affine{}, x, {scale, shift}, site);
}
Tensor abs(const Tensor& x, Site site) { return unary(functions::Abs{}, x, {}, site); }
Tensor exp(const Tensor& x, Site site) { return unary(functions::Exp{}, x, {}, site); }
Tensor log(const Tensor& x, Site site) { return unary(functions::Log{}, x, {}, site); }
Tensor log1p(const Tensor& x, Site site) { return unary(functions::Log1p{}, x, {}, site); }
Tensor sqrt(const Tensor& x, Site site) { return unary(functions::Sqrt{}, x, {}, site); }
Tensor square(const Tensor& x, Site site) { return unary(functions::Square{}, x, {}, site); }
Tensor reciprocal(const Tensor& x, Site site) { return unary(functions::Reciprocal{}, x, {}, site); }
Tensor sin(const Tensor& x, Site site) { return unary(functions::Sin{}, x, {}, site); }
Tensor cos(const Tensor& x, Site site) { return unary(functions::Cos{}, x, {}, site); }
Tensor tanh(const Tensor& x, Site site) { return unary(functions::Tanh{}, x, {}, site); }
Tensor sigmoid(const Tensor& x, Site site) { return unary(functions::Sigmoid{}, x, {}, site); }
Tensor softplus(const Tensor& x, Site site) { return unary(functions::Softplus{}, x, {}, site); }
Tensor silu(const Tensor& x, Site site) { return unary(functions::Silu{}, x, {}, site); }
Tensor relu(const Tensor& x, Site site) { return unary(functions::Relu{}, x, {}, site); }
Tensor gelu(const Tensor& x, Site site) { return unary(functions::Gelu{}, x, {}, site); }
Tensor gelu_erf(const Tensor& x, Site site) { return unary(functions::GeluErf{}, x, {}, site); }
Tensor leaky_relu(const Tensor& x, double slope, Site site) {
  return unary(functions::LeakyRelu{}, x, {slope, 0}, site);
}
Tensor clamp(const Tensor& x, double low, double high, Site site) {
  return unary(functions::Clamp{}, x, {low, high}, site);
}
Tensor clamp_max(const Tensor& x, double high, Site site) { return clamp(x, -functions::infinity, high, site); }

}  // namespace whence

// Functions of one number: y = f(x),  dx = f'(x) dy.  The functions and their derivatives are the table of
// tensor/pointwise.h.
#include "autograd/checked.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

Saves saves(Unary f) {
  return visit(f, []<class F>(F) { return F::saves; });
}

// dx = dy g(kept), where g(kept) = f'(x) and kept is x or y. Its own derivative needs g', and is where we stop.
struct UnaryBackward {
  static constexpr const char* name = "unary_backward";
  static constexpr bool once = true;
  Unary f;
  UnaryAttributes p;
  struct Saved {
    SavedTensor kept, dy;
  };
  Tensor forward(Saved& saved, const Tensor& kept, const Tensor& dy) const {
    saved.kept = kept;
    saved.dy = dy;
    return raw::unary_backward(f, kept, dy, p);
  }
  Grads<2> backward(const Saved& saved, const Tensor& dz, Needs<2> needs) const {
    // z = dy g(kept): d/dkept = dz dy g'(kept), d/ddy = dz g(kept)
    Grads<2> grads;
    const Tensor kept = saved.kept.get();
    if (needs[0]) grads[0] = multiply(dz, raw::unary_second(f, kept, saved.dy.get(), p));
    if (needs[1]) grads[1] = raw::unary_backward(f, kept, dz, p);
    return grads;
  }
  static Samples<UnaryBackward> samples() {
    return {{"sigmoid", {Unary::sigmoid, {}}, {draw::uniform({3, 5}, 0.1, 0.9), draw::normal({3, 5})}},
        {"gelu", {Unary::gelu, {}}, {draw::normal({2, 7}), draw::normal({2, 7})}},
        {"exp of 0-d", {Unary::exp, {}}, {draw::normal({}), draw::normal({})}}};
  }
};

struct UnaryOp {
  static constexpr const char* name = "unary";
  Unary f;
  UnaryAttributes p;
  const char* label() const {  // in the order of the enumeration
    constexpr const char* labels[] = {"affine", "abs", "exp", "log", "log1p", "sqrt", "square", "reciprocal", "sin",
        "cos", "tanh", "sigmoid", "softplus", "silu", "relu", "leaky_relu", "gelu", "gelu_erf", "clamp"};
    return labels[static_cast<int>(f)];
  }
  struct Saved {
    SavedTensor kept;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    raw::require_floating(label(), "x", x);
    const Tensor y = raw::unary(f, x, p);
    if (saves(f) == Saves::input) saved.kept = x;
    if (saves(f) == Saves::output) saved.kept.output(y);
    return y;
  }
  // dx = f'(x) dy; only affine keeps nothing, and is its own kind of adjoint
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const {
    if (saves(f) == Saves::nothing) return {apply(UnaryOp{f, {p.a, 0}}, Site::current(), dy)};  // affine: dx = a dy
    return {apply(UnaryBackward{f, p}, Site::current(), saved.kept.get(), dy)};
  }
  static Samples<UnaryOp> samples() {
    Samples<UnaryOp> all = {{"affine", {Unary::affine, {-1.5, 0.25}}, {draw::normal({2, 3})}},
        {"abs at 0", {Unary::abs, {}}, {draw::integers({9}, -1, 1)}, true},
        {"relu at 0", {Unary::relu, {}}, {draw::integers({9}, -1, 1)}, true},
        {"leaky_relu at 0", {Unary::leaky_relu, {0.01, 0}}, {draw::integers({9}, -1, 1)}, true},
        {"clamp at its bounds", {Unary::clamp, {-1, 1}}, {draw::integers({11}, -2, 2)}, true},
        {"softplus at 0 and far out", {Unary::softplus, {}}, {Tensor::of({0, 40, -40, 800, -800}, {5}, DType::f64)}},
        {"leaky_relu", {Unary::leaky_relu, {0.01, 0}}, {draw::normal({3, 4})}},
        {"clamp", {Unary::clamp, {-0.5, 0.7}}, {draw::normal({17})}}};
    for (const auto& [label, f] : {std::pair{"log", Unary::log}, {"log1p", Unary::log1p}, {"sqrt", Unary::sqrt},
             {"reciprocal", Unary::reciprocal}}) {
      all.push_back({label, {f, {}}, {draw::uniform({3, 5}, 0.5, 2)}});
    }
    for (const auto& [label, f] :
        {std::pair{"abs", Unary::abs}, {"exp", Unary::exp}, {"square", Unary::square}, {"sin", Unary::sin},
            {"cos", Unary::cos}, {"tanh", Unary::tanh}, {"sigmoid", Unary::sigmoid}, {"softplus", Unary::softplus},
            {"silu", Unary::silu}, {"relu", Unary::relu}, {"gelu", Unary::gelu}, {"gelu_erf", Unary::gelu_erf}}) {
      all.push_back({label, {f, {}}, {draw::normal({2, 3, 5})}});
    }
    return all;
  }
};

const Checked<UnaryOp> checked;
const Checked<UnaryBackward> checked_backward;

}  // namespace

Tensor unary(Unary f, const Tensor& x, UnaryAttributes p, Site at) { return apply(UnaryOp{f, p}, at, x); }
Tensor unary_backward(Unary f, const Tensor& kept, const Tensor& dy, UnaryAttributes p, Site at) {
  return apply(UnaryBackward{f, p}, at, kept, dy);
}
Tensor affine(const Tensor& x, double scale, double shift, Site at) {
  return unary(Unary::affine, x, {scale, shift}, at);
}
Tensor abs(const Tensor& x, Site at) { return unary(Unary::abs, x, {}, at); }
Tensor exp(const Tensor& x, Site at) { return unary(Unary::exp, x, {}, at); }
Tensor log(const Tensor& x, Site at) { return unary(Unary::log, x, {}, at); }
Tensor log1p(const Tensor& x, Site at) { return unary(Unary::log1p, x, {}, at); }
Tensor sqrt(const Tensor& x, Site at) { return unary(Unary::sqrt, x, {}, at); }
Tensor square(const Tensor& x, Site at) { return unary(Unary::square, x, {}, at); }
Tensor reciprocal(const Tensor& x, Site at) { return unary(Unary::reciprocal, x, {}, at); }
Tensor sin(const Tensor& x, Site at) { return unary(Unary::sin, x, {}, at); }
Tensor cos(const Tensor& x, Site at) { return unary(Unary::cos, x, {}, at); }
Tensor tanh(const Tensor& x, Site at) { return unary(Unary::tanh, x, {}, at); }
Tensor sigmoid(const Tensor& x, Site at) { return unary(Unary::sigmoid, x, {}, at); }
Tensor softplus(const Tensor& x, Site at) { return unary(Unary::softplus, x, {}, at); }
Tensor silu(const Tensor& x, Site at) { return unary(Unary::silu, x, {}, at); }
Tensor relu(const Tensor& x, Site at) { return unary(Unary::relu, x, {}, at); }
Tensor leaky_relu(const Tensor& x, double slope, Site at) { return unary(Unary::leaky_relu, x, {slope, 0}, at); }
Tensor gelu(const Tensor& x, Site at) { return unary(Unary::gelu, x, {}, at); }
Tensor gelu_erf(const Tensor& x, Site at) { return unary(Unary::gelu_erf, x, {}, at); }
Tensor clamp(const Tensor& x, double low, double high, Site at) { return unary(Unary::clamp, x, {low, high}, at); }
Tensor clamp_max(const Tensor& x, double high, Site at) { return clamp(x, -__builtin_inf(), high, at); }

}  // namespace whence

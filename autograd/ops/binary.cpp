// Functions of two numbers that broadcast as numpy does: y = f(a, b). sum_to reduces a gradient over stretched axes.
#include "autograd/backward.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// Returns a tensor like x full of `number`, by strides of 0, without memory for each element.
Tensor filled(double number, const Tensor& x) {
  return raw::expand(Tensor::scalar(number, x.dtype(), x.device()), x.shape());
}

template <class F> struct Broadcasting {
  static constexpr const char* name = F::facts.name;
  static constexpr bool broadcasts = true;
};

// y = a + b, or a - b    da = dy    db = dy, or -dy
template <class F> struct Sum : Broadcasting<F> {
  struct Saved {
    Shape a, b;
  };
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    saved = {a.shape(), b.shape()};
    return raw::binary(Sum::name, F{}, a, b);
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2> needs) const {
    Grads<2> grads{needs[0] ? sum_to(dy, saved.a) : Tensor(), needs[1] ? sum_to(dy, saved.b) : Tensor()};
    if (needs[1] && std::is_same_v<F, functions::Subtract>) grads[1] = affine(grads[1], -1, 0);
    return grads;
  }
};

// y = a b    da = dy b    db = dy a
struct Multiply : Broadcasting<functions::Multiply> {
  static constexpr std::size_t factor = 1;
  struct Saved {
    SavedTensor a, b;  // each saved only if the other one needs it
    Shape a_shape, b_shape;
  };
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    if (tracked(b)) saved.a = a;
    if (tracked(a)) saved.b = b;
    saved.a_shape = a.shape(), saved.b_shape = b.shape();
    return raw::binary(name, functions::Multiply{}, a, b);
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2> needs) const {
    Grads<2> grads;
    if (needs[0]) grads[0] = sum_to(multiply(dy, saved.b.get()), saved.a_shape);
    if (needs[1]) grads[1] = sum_to(multiply(dy, saved.a.get()), saved.b_shape);
    return grads;
  }
};

// y = a / b    da = dy / b    db = -(dy / b) y
struct Divide : Broadcasting<functions::Divide> {
  static constexpr std::size_t factor = 1;
  struct Saved {
    SavedTensor b, y;
    Shape a_shape;
  };
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    const Tensor y = raw::binary(name, functions::Divide{}, a, b);
    saved.b = b;
    if (tracked(b)) saved.y.output(y);
    saved.a_shape = a.shape();
    return y;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2> needs) const {
    const Tensor b = saved.b.get(), dy_by_b = divide(dy, b);
    Grads<2> grads;
    // y = a b^-1: d/da = b^-1, and d/db = -a b^-2 = -y b^-1, which needs no a
    if (needs[0]) grads[0] = sum_to(dy_by_b, saved.a_shape);
    if (needs[1]) grads[1] = affine(sum_to(multiply(dy_by_b, saved.y.get()), b.shape()), -1, 0);
    return grads;
  }
};

// y = max(a, b) or min(a, b): the gradient goes to the operand taken; if both are equal, each gets half.
//   da = dy s    db = dy (1 - s)    s = 1 where a is taken, 0 where b is, 1/2 where they are equal
template <class F> struct Extremum : Broadcasting<F> {
  struct Saved {
    SavedTensor a, b;
  };
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    saved.a = a;
    saved.b = b;
    return raw::binary(Extremum::name, F{}, a, b);
  }
  // Small steps do not change the choice, so s is a constant without history. s = ([a wins or ties] + 1 - [b wins or
  // ties]) / 2
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2> needs) const {
    constexpr bool smallest = std::is_same_v<F, functions::Minimum>;
    const Tensor a = saved.a.get().detach(), b = saved.b.get().detach();
    const auto wins = [&](const Tensor& one, const Tensor& other) {
      return raw::binary(Extremum::name, functions::GreaterEqual{}, smallest ? other : one, smallest ? one : other);
    };
    const Tensor difference = raw::binary(Extremum::name, functions::Subtract{}, wins(a, b), wins(b, a));
    const Tensor share = raw::unary(functions::Affine{}, difference, {0.5, 0.5});
    Grads<2> grads;
    if (needs[0]) grads[0] = sum_to(multiply(dy, share), a.shape());
    if (needs[1]) grads[1] = sum_to(multiply(dy, raw::unary(functions::Affine{}, share, {-1, 1})), b.shape());
    return grads;
  }
};

using Add = Sum<functions::Add>;
using Subtract = Sum<functions::Subtract>;
using Maximum = Extremum<functions::Maximum>;
using Minimum = Extremum<functions::Minimum>;
}  // namespace

Tensor add(const Tensor& a, const Tensor& b, Site site) { return apply(Add{}, site, a, b); }
Tensor subtract(const Tensor& a, const Tensor& b, Site site) { return apply(Subtract{}, site, a, b); }
Tensor multiply(const Tensor& a, const Tensor& b, Site site) { return apply(Multiply{}, site, a, b); }
Tensor divide(const Tensor& a, const Tensor& b, Site site) { return apply(Divide{}, site, a, b); }
Tensor divide(const Tensor& a, double b, Site site) {
  const CallSite place(site, "divide");
  return divide(a, filled(b, a), site);
}
Tensor divide(double a, const Tensor& b, Site site) {
  const CallSite place(site, "divide");
  return divide(filled(a, b), b, site);
}
Tensor maximum(const Tensor& a, const Tensor& b, Site site) { return apply(Maximum{}, site, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b, Site site) { return apply(Minimum{}, site, a, b); }

}  // namespace whence

// Functions of two numbers that broadcast as numpy does: y = f(a, b). sum_to sums a gradient over what was stretched.
#include "autograd/backward.h"
#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// Every op here has samples with operands of equal shape, each operand broadcast, both broadcast, 0-d and empty.
template <class Op> Samples<Op> broadcasting_samples(Tensor (*draw_b)(const Shape&)) {
  Samples<Op> all;
  const std::pair<Shape, Shape> shapes[] = {{{3, 5}, {3, 5}}, {{2, 3, 4}, {4}}, {{3, 1}, {1, 7}}, {{5}, {2, 1, 5}},
      {{}, {2, 3}}, {{2, 1, 3}, {}}, {{}, {}}, {{0, 4}, {1, 4}}, {{1}, {0}}, {{2, 3, 1, 5}, {3, 4, 1}}};
  for (const auto& [a, b] : shapes) all.push_back({to_text(a, " ", b), {}, {draw::normal(a), draw_b(b)}});
  return all;
}

Tensor away_from_zero(const Shape& shape) { return draw::uniform(shape, 0.5, 2); }

template <class Op> std::vector<BadInput> clashes() {
  const std::string op = Op::name;
  return {{op + ": a is [2,3], b is [2,4]; extents 3 and 4 of axis -1 differ and neither is 1; reshape or expand one "
                "of them",
              [] {
                (void)apply(Op{}, Site::current(), Tensor::zeros({2, 3}), Tensor::zeros({2, 4}));
              }},
      {op + ": a is f32, b is f64; equal dtypes required; convert with cast",
          [] { (void)apply(Op{}, Site::current(), Tensor::zeros({2}), Tensor::zeros({2}, DType::f64)); }}};
}

// y = a + b    da = dy    db = dy
struct Add {
  static constexpr const char* name = "add";
  static constexpr bool broadcasts = true;
  struct Saved {
    Shape a, b;
  };
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    saved = {a.shape(), b.shape()};
    return raw::binary(name, functions::Add{}, a, b);
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2> needs) const {
    return {needs[0] ? sum_to(dy, saved.a) : Tensor(), needs[1] ? sum_to(dy, saved.b) : Tensor()};
  }
  static Samples<Add> samples() { return broadcasting_samples<Add>(draw::normal); }
  static std::vector<BadInput> bad_inputs() { return clashes<Add>(); }
};

// y = a - b    da = dy    db = -dy
struct Subtract {
  static constexpr const char* name = "subtract";
  static constexpr bool broadcasts = true;
  struct Saved {
    Shape a, b;
  };
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    saved = {a.shape(), b.shape()};
    return raw::binary(name, functions::Subtract{}, a, b);
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2> needs) const {
    return {needs[0] ? sum_to(dy, saved.a) : Tensor(), needs[1] ? affine(sum_to(dy, saved.b), -1, 0) : Tensor()};
  }
  static Samples<Subtract> samples() { return broadcasting_samples<Subtract>(draw::normal); }
  static std::vector<BadInput> bad_inputs() { return clashes<Subtract>(); }
};

// y = a b    da = dy b    db = dy a
struct Multiply {
  static constexpr const char* name = "multiply";
  static constexpr bool broadcasts = true;
  struct Saved {
    SavedTensor a, b;  // each only when the other one needs it
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
  static Samples<Multiply> samples() { return broadcasting_samples<Multiply>(draw::normal); }
  static std::vector<BadInput> bad_inputs() { return clashes<Multiply>(); }
};

// y = a / b    da = dy / b    db = -(dy / b) y
struct Divide {
  static constexpr const char* name = "divide";
  static constexpr bool broadcasts = true;
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
  static Samples<Divide> samples() { return broadcasting_samples<Divide>(away_from_zero); }
  static std::vector<BadInput> bad_inputs() { return clashes<Divide>(); }
};

// y = max(a, b) or min(a, b): the gradient goes to the one taken; where both are equal, each has half.
//   da = dy s    db = dy (1 - s)    s = 1 where a is taken, 0 where b is, 1/2 where they are equal
struct Extremum {
  static constexpr bool broadcasts = true;
  struct Saved {
    SavedTensor a, b;
  };
  bool smallest = false;
  const char* op = "maximum";

  // Which one was taken does not change with small steps, so s is a constant: no history. s = ([a wins or ties] + 1 -
  // [b wins or ties]) / 2
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2> needs) const {
    const Tensor a = saved.a.get().detach(), b = saved.b.get().detach();
    const Tensor left = raw::binary(op, functions::GreaterEqual{}, smallest ? b : a, smallest ? a : b);
    const Tensor right = raw::binary(op, functions::GreaterEqual{}, smallest ? a : b, smallest ? b : a);
    const Tensor share =
        raw::unary(functions::Affine{}, raw::binary(op, functions::Subtract{}, left, right), {0.5, 0.5});
    Grads<2> grads;
    if (needs[0]) grads[0] = sum_to(multiply(dy, share), a.shape());
    if (needs[1]) grads[1] = sum_to(multiply(dy, raw::unary(functions::Affine{}, share, {-1, 1})), b.shape());
    return grads;
  }
  template <class Op> static Samples<Op> extremum_samples() {
    Samples<Op> all = broadcasting_samples<Op>(draw::normal);
    all.push_back({"ties", {}, {draw::integers({4, 5}, -1, 1), draw::integers({4, 5}, -1, 1)}, true});
    return all;
  }
};

struct Maximum : Extremum {
  static constexpr const char* name = "maximum";
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    saved.a = a;
    saved.b = b;
    return raw::binary(name, functions::Maximum{}, a, b);
  }
  static Samples<Maximum> samples() { return extremum_samples<Maximum>(); }
  static std::vector<BadInput> bad_inputs() { return clashes<Maximum>(); }
};

struct Minimum : Extremum {
  static constexpr const char* name = "minimum";
  Minimum() : Extremum{true, name} {}
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    saved.a = a;
    saved.b = b;
    return raw::binary(name, functions::Minimum{}, a, b);
  }
  static Samples<Minimum> samples() { return extremum_samples<Minimum>(); }
  static std::vector<BadInput> bad_inputs() { return clashes<Minimum>(); }
};

const Checked<Add> checked_add;
const Checked<Subtract> checked_subtract;
const Checked<Multiply> checked_multiply;
const Checked<Divide> checked_divide;
const Checked<Maximum> checked_maximum;
const Checked<Minimum> checked_minimum;

}  // namespace

Tensor add(const Tensor& a, const Tensor& b, Site at) { return apply(Add{}, at, a, b); }
Tensor subtract(const Tensor& a, const Tensor& b, Site at) { return apply(Subtract{}, at, a, b); }
Tensor multiply(const Tensor& a, const Tensor& b, Site at) { return apply(Multiply{}, at, a, b); }
Tensor divide(const Tensor& a, const Tensor& b, Site at) { return apply(Divide{}, at, a, b); }
Tensor maximum(const Tensor& a, const Tensor& b, Site at) { return apply(Maximum{}, at, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b, Site at) { return apply(Minimum{}, at, a, b); }

}  // namespace whence

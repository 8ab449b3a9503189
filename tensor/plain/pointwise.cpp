// Functions of one number and of two (tensor/pointwise.h has the formulas).
#include "tensor/pointwise.h"

#include "tensor/error.h"
#include "tensor/plain/access.h"

namespace whence {

using plain::In, plain::Out;

// y = f(x)
void Kernels::unary(Unary f, UnaryAttributes p, const Tensor& x, const Tensor& y) {
  visit_floating("unary", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    using Function = C (*)(C, UnaryAttributes);
    const auto value = visit(f, []<class F>(F) -> Function { return F::template value<C>; });
    const In<T> from(x);
    const Out<T> to(y);
    for (index_t i = 0; i < to.rows(); ++i)
      for (index_t j = 0; j < to.width(); ++j) to[i][j] = value(from[i][j], p);
  });
}

// dx = dy f'(saved)
void Kernels::unary_backward(Unary f, UnaryAttributes p, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  visit_floating("unary_backward", dy.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    using Function = C (*)(C, UnaryAttributes);
    const auto derivative = visit(f, []<class F>(F) -> Function { return F::template derivative<C>; });
    const In<T> at(saved), g(dy);
    const Out<T> to(dx);
    for (index_t i = 0; i < to.rows(); ++i)
      for (index_t j = 0; j < to.width(); ++j) to[i][j] = g[i][j] * derivative(at[i][j], p);
  });
}

// dx = dy f''(saved): the tangent of f' at saved + 1 e
void Kernels::unary_second(Unary f, UnaryAttributes p, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  if (dy.dtype() == DType::dual)
    fail("unary_second", "dual given; the second derivative of a dual would need nested duals; use f64");
  using Function = Dual (*)(Dual, UnaryAttributes);
  const auto derivative = visit(f, []<class F>(F) -> Function { return F::template derivative<Dual>; });
  visit_real("unary_second", dy.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const In<T> at(saved), g(dy);
    const Out<T> to(dx);
    for (index_t i = 0; i < to.rows(); ++i)
      for (index_t j = 0; j < to.width(); ++j)
        to[i][j] = g[i][j] * static_cast<C>(derivative({static_cast<double>(at[i][j]), 1}, p).tangent);
  });
}

// y = f(a, b)
void Kernels::binary(Binary f, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_floating("binary", a.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    using Function = C (*)(C, C);
    const auto value = visit(f, []<class F>(F) -> Function { return F::template value<C>; });
    const In<T> left(a), right(b);
    const Out<T> to(y);
    for (index_t i = 0; i < to.rows(); ++i)
      for (index_t j = 0; j < to.width(); ++j) to[i][j] = value(left[i][j], right[i][j]);
  });
}

}  // namespace whence

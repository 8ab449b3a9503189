// Functions of one number and of two (tensor/pointwise.h has the formulas). A loop is chosen once per call.
#include "tensor/pointwise.h"

#include "tensor/error.h"
#include "tensor/kernels/each_row.h"

namespace whence {

template <class C> using Numbers = Row<const C>;
template <class C, class... X> using Loop = void (*)(UnaryAttributes p, Row<C> y, X... x);

template <class C> static Loop<C, Numbers<C>> value_loop(Unary f) {
  return visit(f, []<class F>(F) -> Loop<C, Numbers<C>> {
    return [](UnaryAttributes p, Row<C> y, Numbers<C> x) {
      for (index_t j = 0; j < y.size(); ++j) y[j] = F::value(x[j], p);
    };
  });
}

template <class C> static Loop<C, Numbers<C>, Numbers<C>> derivative_loop(Unary f) {
  return visit(f, []<class F>(F) -> Loop<C, Numbers<C>, Numbers<C>> {
    return [](UnaryAttributes p, Row<C> dx, Numbers<C> saved, Numbers<C> dy) {
      for (index_t j = 0; j < dx.size(); ++j) dx[j] = dy[j] * F::derivative(saved[j], p);
    };
  });
}

// One of x and z may be a single number, for all.
template <class C> static Loop<C, Numbers<C>, Numbers<C>> pair_loop(Binary f) {
  return visit(f, []<class F>(F) -> Loop<C, Numbers<C>, Numbers<C>> {
    return [](UnaryAttributes, Row<C> y, Numbers<C> x, Numbers<C> z) {
      if (const C one = z[0]; z.size() < y.size())
        for (index_t j = 0; j < y.size(); ++j) y[j] = F::value(x[j], one);
      else if (const C first = x[0]; x.size() < y.size())
        for (index_t j = 0; j < y.size(); ++j) y[j] = F::value(first, z[j]);
      else
        for (index_t j = 0; j < y.size(); ++j) y[j] = F::value(x[j], z[j]);
    };
  });
}

// y = f(x)
void Kernels::unary(Unary f, UnaryAttributes p, const Tensor& x, const Tensor& y) {
  visit_floating("unary", x.dtype(), [&]<class T>(Type<T>) {
    const auto loop = value_loop<compute_t<T>>(f);
    Operands(Out<T>(y), In<T>(x)).each_run([=](auto... run) { loop(p, run...); });
  });
}

// dx = dy f'(saved)
void Kernels::unary_backward(Unary f, UnaryAttributes p, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  visit_floating("unary_backward", dy.dtype(), [&]<class T>(Type<T>) {
    const auto loop = derivative_loop<compute_t<T>>(f);
    Operands(Out<T>(dx), In<T>(saved), In<T>(dy)).each_run([=](auto... run) { loop(p, run...); });
  });
}

// dx = dy f''(saved): the tangent of f' at saved + 1 e
void Kernels::unary_second(Unary f, UnaryAttributes p, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  if (dy.dtype() == DType::dual)
    fail("unary_second", "dual given; the second derivative of a dual would need nested duals; use f64");
  using Function = Dual (*)(Dual, UnaryAttributes);
  const auto derivative = visit(f, []<class F>(F) -> Function { return F::template derivative<Dual>; });
  visit_real("unary_second", dy.dtype(), [&]<class T>(Type<T>) {
    Operands(Out<T>(dx), In<T>(saved), In<T>(dy)).each_run([=](auto to, auto at, auto g) {
      for (index_t j = 0; j < to.size(); ++j)
        to[j] = g[j] * static_cast<compute_t<T>>(derivative({static_cast<double>(at[j]), 1}, p).tangent);
    });
  });
}

// y = f(a, b)
void Kernels::binary(Binary f, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_floating("binary", a.dtype(), [&]<class T>(Type<T>) {
    const auto loop = pair_loop<compute_t<T>>(f);
    Operands(Out<T>(y), In<T>(a), In<T>(b)).each_run([=](auto... run) { loop({}, run...); }, true);
  });
}

}  // namespace whence

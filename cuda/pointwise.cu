// Unary and binary functions. The function's name is switched inside the kernel: one kernel per dtype serves all functions and all strides,
// which keeps compile time and binary small; all threads of a launch take the same branch.
#include "cuda/kernels.h"
#include "cuda/strided_index.h"
#include "tensor/convert.h"
#include "tensor/launch.h"

namespace whence {
namespace {

template <class T>
struct UnaryValue {  // y = f(x)
  StridedIndex<1> index;
  const T* x;
  T* y;
  Unary function;
  UnaryAttributes p;
  WHENCE_HD void operator()(index_t i) const {
    const compute_t<T> value = x[index(i)[0]];
    y[i] = convert<T>(visit(function, [&]<class F>(F) { return F::value(value, p); }));
  }
};

template <class T>
struct UnaryDerivative {  // dx = dy f'
  StridedIndex<2> index;
  const T *kept, *dy;
  T* dx;
  Unary function;
  UnaryAttributes p;
  WHENCE_HD void operator()(index_t i) const {
    using C = compute_t<T>;
    const auto at = index(i);
    const C value = kept[at[0]];
    dx[i] = convert<T>(C(dy[at[1]]) * visit(function, [&]<class F>(F) { return F::derivative(value, p); }));
  }
};

template <class T>
struct UnarySecond {  // dx = dy d f'(v)/dv by a dual number, v being what f' is written in: x or y
  StridedIndex<2> index;
  const T *kept, *dy;
  T* dx;
  Unary function;
  UnaryAttributes p;
  WHENCE_HD void operator()(index_t i) const {
    using C = compute_t<T>;
    const auto at = index(i);
    const Dual value{static_cast<double>(C(kept[at[0]])), 1};
    dx[i] = convert<T>(C(dy[at[1]]) * static_cast<C>(visit(function, [&]<class F>(F) { return F::derivative(value, p); }).tangent));
  }
};

template <class T>
struct BinaryValue {  // y = f(a, b)
  StridedIndex<2> index;
  const T *a, *b;
  T* y;
  Binary function;
  WHENCE_HD void operator()(index_t i) const {
    using C = compute_t<T>;
    const auto at = index(i);
    const C left = a[at[0]], right = b[at[1]];
    y[i] = convert<T>(visit(function, [&]<class F>(F) { return F::value(left, right); }));
  }
};

template <class Body, class T>
void run_derivative(const char* op, Unary f, UnaryAttributes p, const Tensor& kept, const Tensor& dy, const Tensor& dx) {
  const Body body{{dx.shape(), {kept.strides(), dy.strides()}}, kept.data<T>(), dy.data<T>(), dx.data<T>(), f, p};
  launch(op, dx.device(), dx.numel(), body);
}

}  // namespace

void CudaKernels::unary(Unary f, UnaryAttributes p, const Tensor& x, const Tensor& y) {
  visit_floating("unary", x.dtype(), [&]<class T>(Type<T>) {
    launch("unary", y.device(), y.numel(), UnaryValue<T>{{y.shape(), {x.strides()}}, x.data<T>(), y.data<T>(), f, p});
  });
}

void CudaKernels::unary_backward(Unary f, UnaryAttributes p, const Tensor& kept, const Tensor& dy, const Tensor& dx) {
  visit_floating("unary_backward", dy.dtype(),
                 [&]<class T>(Type<T>) { run_derivative<UnaryDerivative<T>, T>("unary_backward", f, p, kept, dy, dx); });
}

void CudaKernels::unary_second(Unary f, UnaryAttributes p, const Tensor& kept, const Tensor& dy, const Tensor& dx) {
  if (dy.dtype() == DType::dual) fail("unary_second", "dual given; the second derivative of a dual would need nested duals; use f64");
  visit_floating("unary_second", dy.dtype(), [&]<class T>(Type<T>) {
    if constexpr (!std::is_same_v<T, Dual>) run_derivative<UnarySecond<T>, T>("unary_second", f, p, kept, dy, dx);
  });
}

void CudaKernels::binary(Binary f, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_floating("binary", a.dtype(), [&]<class T>(Type<T>) {
    launch("binary", y.device(), y.numel(),
           BinaryValue<T>{{y.shape(), {a.strides(), b.strides()}}, a.data<T>(), b.data<T>(), y.data<T>(), f});
  });
}

}  // namespace whence

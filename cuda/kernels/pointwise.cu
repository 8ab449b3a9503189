// Unary and binary functions. Contiguous operands have a kernel for each function (pointwise.h). Here, for all other
// strides, a switch inside the kernel selects the function: one kernel per dtype serves all functions, which keeps
// compile time and binary small; all threads of a launch take the same branch.
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/pointwise.h"
#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/launch.h"
#include "tensor/strided_index.h"

namespace whence {
namespace {

using gpu::Global, gpu::Number, gpu::Pack, gpu::Thread;

// y = f(a, b) with any strides.
template <class T, class F> struct Strided {
  StridedIndex<2> index;
  const T *a, *b;
  T* y;
  F f;
  WHENCE_HD void operator()(index_t i) const {
    using C = compute_t<T>;
    const auto at = index(i);
    y[i] = convert<T>(f(C(a[at[0]]), C(b[at[1]])));
  }
};
struct UnaryValue {  // of the first
  Unary function;
  UnaryAttributes p;
  template <class C> WHENCE_HD C operator()(C x, C) const {
    return visit(function, [&]<class F>(F) { return F::value(x, p); });
  }
};
struct UnaryDerivative {  // dx = dy f'
  Unary function;
  UnaryAttributes p;
  template <class C> WHENCE_HD C operator()(C saved, C dy) const {
    return dy * visit(function, [&]<class F>(F) { return F::derivative(saved, p); });
  }
};
struct UnarySecond {  // dx = dy d f'(v)/dv by a dual number, v being the argument of f': x or y
  Unary function;
  UnaryAttributes p;
  template <class C> WHENCE_HD C operator()(C saved, C dy) const {
    const Dual value{static_cast<double>(saved), 1};
    return dy * static_cast<C>(visit(function, [&]<class F>(F) { return F::derivative(value, p); }).tangent);
  }
};
struct BinaryValue {
  Binary function;
  template <class C> WHENCE_HD C operator()(C a, C b) const {
    return visit(function, [&]<class F>(F) { return F::value(a, b); });
  }
};

template <class T, class F>
void run_strided(const char* op, const F& f, const Tensor& a, const Tensor& b, const Tensor& y) {
  launch(op, y.device(), y.numel(),
      Strided<T, F>{{y.shape(), {a.strides(), b.strides()}}, a.data<T>(), b.data<T>(), y.data<T>(), f});
}

// y = f(a, b) for rows that can be read in packs: y = x + bias, x times one number per row. One pack per thread.
// Per element: at most 2 numbers read, 1 written, f: memory.
template <class T> struct BinaryRows {
  using C = compute_t<T>;
  static constexpr const char* name = "binary, rows in packs";
  static constexpr int threads = 256, pack = gpu::pack_size<T>;
  StridedIndex<2> index;  // of packs
  Global<const T> a, b;
  Global<T> y;
  Binary function;
  bool a_constant, b_constant;  // along a row
  WHENCE_HD void operator()(Thread& t) const {
    const index_t i = t.block() * threads + t.index();
    if (i >= index.count()) return;
    const auto at = index(i);
    const auto left = gpu::load_pack_of<pack>(a, at[0], a_constant),
               right = gpu::load_pack_of<pack>(b, at[1], b_constant);
    Pack<T, pack> to;
    visit(function, [&]<class F>(F) {
      for (int k = 0; k < pack; ++k) to.of[k] = gpu::to_stored<T>(F::value(number(left, k), number(right, k)));
    });
    gpu::store_pack<pack>(y, i * pack, to);
  }
  WHENCE_HD static Number<C> number(const Pack<T, pack>& from, int k) { return gpu::from_stored<C>(from.of[k]); }
};

// True if all are one run of memory that can be read in packs of 16 bytes.
bool in_packs(std::initializer_list<const Tensor*> tensors) {
  bool fit = true;
  for (const Tensor* x : tensors)
    fit = fit && x->is_contiguous() && gpu::begins_with_pack(*x, 16 / static_cast<index_t>(size_of(x->dtype())));
  return fit;
}

template <class T> void run_binary(Binary f, const Tensor& a, const Tensor& b, const Tensor& y) {
  const StridedIndex<2> index(y.shape(), {a.strides(), b.strides()});
  constexpr int pack = gpu::pack_size<T>;
  const auto fits = [&](const Tensor& x, int k) { return index.inner_step(k) == 0 || gpu::begins_with_pack(x, pack); };
  const bool aligned = fits(a, 0) && fits(b, 1) && gpu::begins_with_pack(y, pack);
  if (aligned && index.is_one_run())
    return gpu::Contiguous<T>::binary(f, a, index.inner_step(0), b, index.inner_step(1), y);
  if (aligned && index.has_packs(pack)) {
    const BinaryRows<T> kernel{index.in_packs(pack), gpu::global<const T>(a), gpu::global<const T>(b),
        gpu::global<T>(y), f, index.inner_step(0) == 0, index.inner_step(1) == 0};
    return gpu::launch_kernel(kernel, {.blocks = gpu::blocks_for(kernel.index.count(), BinaryRows<T>::threads)});
  }
  run_strided<T>("binary", BinaryValue{f}, a, b, y);
}

}  // namespace

void CudaKernels::unary(Unary f, UnaryAttributes p, const Tensor& x, const Tensor& y) {
  visit_real("unary", x.dtype(), [&]<class T>(Type<T>) {
    if (in_packs({&x, &y})) return gpu::Contiguous<T>::unary(f, p, x, y);
    run_strided<T>("unary", UnaryValue{f, p}, x, x, y);
  });
}

void CudaKernels::unary_backward(Unary f, UnaryAttributes p, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  visit_real("unary_backward", dy.dtype(), [&]<class T>(Type<T>) {
    if (in_packs({&saved, &dy, &dx})) return gpu::Contiguous<T>::unary_backward(f, p, saved, dy, dx);
    run_strided<T>("unary_backward", UnaryDerivative{f, p}, saved, dy, dx);
  });
}

void CudaKernels::unary_second(Unary f, UnaryAttributes p, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  visit_real("unary_second", dy.dtype(), [&]<class T>(Type<T>) {
    run_strided<T>("unary_second", UnarySecond{f, p}, saved, dy, dx);
  });
}

void CudaKernels::binary(Binary f, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_real("binary", a.dtype(), [&]<class T>(Type<T>) { run_binary<T>(f, a, b, y); });
}

}  // namespace whence

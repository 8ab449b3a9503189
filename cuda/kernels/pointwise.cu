// Unary and binary functions. Contiguous operands have a kernel for each function. For all other strides a switch
// inside the kernel selects the function: one kernel per dtype serves all functions, which keeps compile time and
// binary small; all threads of a launch take the same branch.
#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/launch.h"
#include "tensor/pointwise.h"
#include "tensor/strided_index.h"

namespace whence {
namespace {

using namespace gpu;

// ---- Contiguous operands, in packs of 16 bytes.

// One operand or two, and the loop of a block over its share: every thread takes `packs_each` packs, a block's length
// apart. The last block takes the incomplete pack, element by element.
template <class T, bool two, bool may_be_constant = false> struct PackOperands {
  using C = compute_t<T>;
  static constexpr int threads = 256, pack = pack_size<T>, packs_each = 4;
  static constexpr index_t share = static_cast<index_t>(threads) * pack * packs_each;
  Global<const T> a, b;  // b: of two
  Global<T> y;
  index_t count;
  UnaryAttributes p = {};
  bool a_constant = false, b_constant = false;  // one number for all elements

  // y = f(a, b) of all elements
  template <class F> WHENCE_HD void each(Thread& t, const F& f) const {
    const index_t whole = count / pack * pack, begin = t.block() * share;
    const index_t end = begin + share < whole ? begin + share : whole;
    for (index_t i = begin + t.index() * pack; i < end; i += threads * pack) {
      const auto left = read(a, i, a_constant), right = two ? read(b, i, b_constant) : left;
      Pack<T, pack> to;
      for (int k = 0; k < pack; ++k)
        to.of[k] = to_stored<T>(f(from_stored<C>(left.of[k]), from_stored<C>(right.of[k])));
      store_pack<pack>(y, i, to);
    }
    const index_t i = whole + t.index();
    if (t.block() + 1 != t.blocks() || i >= count) return;
    const Number<C> left = load<C>(a, may_be_constant && a_constant ? 0 : i);
    store(y, i, f(left, two ? load<C>(b, may_be_constant && b_constant ? 0 : i) : left));
  }

 private:
  WHENCE_HD static Pack<T, pack> read(Global<const T> from, index_t i, bool constant) {
    if constexpr (may_be_constant)
      return load_pack_of<pack>(from, constant ? 0 : i, constant);
    else
      return load_pack<pack>(from, i);
  }
};

// Per element: 1 number read, 1 written, f: memory; for erf or tanh of 16-bit numbers arithmetic comes close.
template <class T, class F> struct UnaryPacks : PackOperands<T, false> {  // y = f(x)
  static constexpr const char* name = "unary";
  WHENCE_HD void operator()(Thread& t) const {
    this->each(t, [this](auto x, auto) { return F::value(x, this->p); });
  }
};

// Per element: 2 numbers read, 1 written, f' and 1 operation: memory.
template <class T, class F> struct DerivativePacks : PackOperands<T, true> {  // dx = dy f'
  static constexpr const char* name = "unary_backward";
  WHENCE_HD void operator()(Thread& t) const {
    this->each(t, [this](auto kept, auto dy) { return dy * F::derivative(kept, this->p); });
  }
};

// Per element: at most 2 numbers read, 1 written, f: memory.
template <class T, class F> struct BinaryPacks : PackOperands<T, true, true> {  // y = f(a, b)
  static constexpr const char* name = "binary";
  WHENCE_HD void operator()(Thread& t) const {
    this->each(t, [](auto left, auto right) { return F::value(left, right); });
  }
};

template <class Body> void launch_packs(const Body& body) {
  launch_kernel(body, {.blocks = blocks_for(body.count, Body::share)});
}

// ---- Any strides.

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

// True if all are one run of memory that can be read in packs of 16 bytes.
bool in_packs(std::initializer_list<const Tensor*> tensors) {
  bool fit = true;
  for (const Tensor* x : tensors)
    fit = fit && x->is_contiguous() && begins_with_pack(*x, 16 / static_cast<index_t>(size_of(x->dtype())));
  return fit;
}

template <class T> void run_binary(Binary f, const Tensor& a, const Tensor& b, const Tensor& y) {
  const StridedIndex<2> index(y.shape(), {a.strides(), b.strides()});
  constexpr int pack = pack_size<T>;
  const auto fits = [&](const Tensor& x, int k) { return index.inner_step(k) == 0 || begins_with_pack(x, pack); };
  const bool aligned = fits(a, 0) && fits(b, 1) && begins_with_pack(y, pack);
  if (aligned && index.is_one_run())
    return visit(f, [&]<class F>(F) {
      launch_packs(BinaryPacks<T, F>{{global<const T>(a), global<const T>(b), global<T>(y), y.numel(), {},
          index.inner_step(0) == 0, index.inner_step(1) == 0}});
    });
  run_strided<T>("binary", BinaryValue{f}, a, b, y);
}

}  // namespace

void CudaKernels::unary(Unary f, UnaryAttributes p, const Tensor& x, const Tensor& y) {
  visit_real("unary", x.dtype(), [&]<class T>(Type<T>) {
    if (in_packs({&x, &y}))
      return visit(f, [&]<class F>(F) {
        launch_packs(UnaryPacks<T, F>{{global<const T>(x), nullptr, global<T>(y), y.numel(), p}});
      });
    run_strided<T>("unary", UnaryValue{f, p}, x, x, y);
  });
}

void CudaKernels::unary_backward(Unary f, UnaryAttributes p, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  visit_real("unary_backward", dy.dtype(), [&]<class T>(Type<T>) {
    if (in_packs({&saved, &dy, &dx}))
      return visit(f, [&]<class F>(F) {
        launch_packs(
            DerivativePacks<T, F>{{global<const T>(saved), global<const T>(dy), global<T>(dx), dx.numel(), p}});
      });
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

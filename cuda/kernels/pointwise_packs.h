// Bodies of Contiguous, included by the files that instantiate them.
#pragma once

#include "cuda/kernels/pointwise.h"
#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"

namespace whence::gpu {

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

template <class T> void Contiguous<T>::unary(Unary f, UnaryAttributes p, const Tensor& x, const Tensor& y) {
  visit(f, [&]<class F>(F) {
    launch_packs(UnaryPacks<T, F>{{global<const T>(x), nullptr, global<T>(y), y.numel(), p}});
  });
}

template <class T>
void Contiguous<T>::unary_backward(Unary f, UnaryAttributes p, const Tensor& kept, const Tensor& dy, const Tensor& dx) {
  visit(f, [&]<class F>(F) {
    launch_packs(DerivativePacks<T, F>{{global<const T>(kept), global<const T>(dy), global<T>(dx), dx.numel(), p}});
  });
}

template <class T>
void Contiguous<T>::binary(
    Binary f, const Tensor& a, index_t a_step, const Tensor& b, index_t b_step, const Tensor& y) {
  visit(f, [&]<class F>(F) {
    launch_packs(BinaryPacks<T, F>{
        {global<const T>(a), global<const T>(b), global<T>(y), y.numel(), {}, a_step == 0, b_step == 0}});
  });
}

}  // namespace whence::gpu

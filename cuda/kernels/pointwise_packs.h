// Bodies of Contiguous, included by the four files that instantiate them.
#pragma once

#include "cuda/kernels/pointwise.h"
#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"

namespace whence::gpu {

// The loop of a block over its share: every thread takes `packs_each` packs, a block's length apart. The last block
// takes the incomplete pack, element by element.
template <class T> struct Walk {
  static constexpr int threads = 256, pack = pack_size<T>, packs_each = 4;
  static constexpr index_t share = static_cast<index_t>(threads) * pack * packs_each;
  index_t count;

  index_t blocks() const { return blocks_for(count, share); }
  template <class Packs, class One> WHENCE_HD void operator()(Thread& t, const Packs& packs, const One& one) const {
    const index_t whole = count / pack * pack, begin = t.block() * share;
    const index_t end = begin + share < whole ? begin + share : whole;
    for (index_t i = begin + t.index() * pack; i < end; i += threads * pack) packs(i);
    if (t.block() + 1 == t.blocks() && whole + t.index() < count) one(whole + t.index());
  }
};

// Per element: 1 number read, 1 written, f: memory; for erf or tanh of 16-bit numbers arithmetic comes close.
template <class T, class F> struct UnaryPacks {  // y = f(x)
  using C = compute_t<T>;
  static constexpr const char* name = "unary";
  static constexpr int threads = Walk<T>::threads, pack = Walk<T>::pack;
  Walk<T> walk;
  Global<const T> x;
  Global<T> y;
  UnaryAttributes p;
  WHENCE_HD void operator()(Thread& t) const {
    walk(
        t,
        [&](index_t i) {
          const auto from = load_pack<pack>(x, i);
          Pack<T, pack> to;
          for (int k = 0; k < pack; ++k) to.of[k] = to_stored<T>(F::value(from_stored<C>(from.of[k]), p));
          store_pack<pack>(y, i, to);
        },
        [&](index_t i) { store(y, i, F::value(load<C>(x, i), p)); });
  }
};

// Per element: 2 numbers read, 1 written, f' and 1 operation: memory.
template <class T, class F> struct DerivativePacks {  // dx = dy f'
  using C = compute_t<T>;
  static constexpr const char* name = "unary_backward";
  static constexpr int threads = Walk<T>::threads, pack = Walk<T>::pack;
  Walk<T> walk;
  Global<const T> kept, dy;
  Global<T> dx;
  UnaryAttributes p;
  WHENCE_HD void operator()(Thread& t) const {
    walk(
        t,
        [&](index_t i) {
          const auto at = load_pack<pack>(kept, i), g = load_pack<pack>(dy, i);
          Pack<T, pack> to;
          for (int k = 0; k < pack; ++k)
            to.of[k] = to_stored<T>(from_stored<C>(g.of[k]) * F::derivative(from_stored<C>(at.of[k]), p));
          store_pack<pack>(dx, i, to);
        },
        [&](index_t i) { store(dx, i, load<C>(dy, i) * F::derivative(load<C>(kept, i), p)); });
  }
};

// Per element: at most 2 numbers read, 1 written, f: memory.
template <class T, class F> struct BinaryPacks {  // y = f(a, b)
  using C = compute_t<T>;
  static constexpr const char* name = "binary";
  static constexpr int threads = Walk<T>::threads, pack = Walk<T>::pack;
  Walk<T> walk;
  Global<const T> a, b;
  bool a_constant, b_constant;
  Global<T> y;
  WHENCE_HD void operator()(Thread& t) const {
    walk(
        t,
        [&](index_t i) {
          const auto left = load_pack_of<pack>(a, a_constant ? 0 : i, a_constant),
                     right = load_pack_of<pack>(b, b_constant ? 0 : i, b_constant);
          Pack<T, pack> to;
          for (int k = 0; k < pack; ++k)
            to.of[k] = to_stored<T>(F::value(from_stored<C>(left.of[k]), from_stored<C>(right.of[k])));
          store_pack<pack>(y, i, to);
        },
        [&](index_t i) { store(y, i, F::value(load<C>(a, a_constant ? 0 : i), load<C>(b, b_constant ? 0 : i))); });
  }
};

template <class T> void Contiguous<T>::unary(Unary f, UnaryAttributes p, const Tensor& x, const Tensor& y) {
  const Walk<T> walk{y.numel()};
  visit(f, [&]<class F>(F) {
    launch_kernel(UnaryPacks<T, F>{walk, global<const T>(x), global<T>(y), p}, {.blocks = walk.blocks()});
  });
}

template <class T>
void Contiguous<T>::unary_backward(Unary f, UnaryAttributes p, const Tensor& kept, const Tensor& dy, const Tensor& dx) {
  const Walk<T> walk{dx.numel()};
  visit(f, [&]<class F>(F) {
    launch_kernel(DerivativePacks<T, F>{walk, global<const T>(kept), global<const T>(dy), global<T>(dx), p},
        {.blocks = walk.blocks()});
  });
}

template <class T>
void Contiguous<T>::binary(
    Binary f, const Tensor& a, index_t a_step, const Tensor& b, index_t b_step, const Tensor& y) {
  const Walk<T> walk{y.numel()};
  visit(f, [&]<class F>(F) {
    launch_kernel(
        BinaryPacks<T, F>{walk, global<const T>(a), global<const T>(b), a_step == 0, b_step == 0, global<T>(y)},
        {.blocks = walk.blocks()});
  });
}

}  // namespace whence::gpu

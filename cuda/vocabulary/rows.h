// How the threads of a kernel share rows out: a warp or a block per row, and what each thread holds of its row.
#pragma once

#include "cuda/vocabulary/block.h"
#include "cuda/vocabulary/packs.h"

namespace whence::gpu {

// N numbers of one thread, in registers.
template <class C, int N> struct Numbers {
  Number<C> of[N];
};

template <class C, int N, class From> WHENCE_HD Numbers<C, N> load_numbers(From from, index_t i) {
  Numbers<C, N> numbers;
  if constexpr (N == 1) {
    numbers.of[0] = load<C>(from, i);
  } else {
    const auto pack = load_pack<N>(from, i);
    for (int k = 0; k < N; ++k) numbers.of[k] = from_stored<C>(pack.of[k]);
  }
  return numbers;
}

template <class T, class C, int N> WHENCE_HD void store_numbers(Global<T> to, index_t i, const Numbers<C, N>& numbers) {
  if constexpr (N == 1) {
    store(to, i, numbers.of[0]);
  } else {
    Pack<T, N> pack;
    for (int k = 0; k < N; ++k) pack.of[k] = to_stored<T>(numbers.of[k]);
    store_pack(to, i, pack);
  }
}

// A way to share rows out. Neighbouring threads of a team take neighbouring packs, then all move on by the whole team's
// length: every access of a warp is one run of memory.
template <int team_threads, int pack_length, int packs_held> struct Part {
  static constexpr int team = team_threads;  // threads that share a row: a warp, or a whole block
  static constexpr int pack = pack_length;   // neighbours that a thread reads and writes in one access
  // Packs that a thread holds. 0: a row is too wide for that and is read again in each pass.
  static constexpr int packs = packs_held;
  static constexpr bool by_warp = team == Thread::warp_size;
  static constexpr int threads = by_warp ? 4 * team : team;
  static constexpr index_t rows_per_block = threads / team;

  static constexpr index_t blocks(index_t rows) { return blocks_for(rows, rows_per_block); }
  template <class V> static constexpr std::size_t reduce_bytes = by_warp ? 0 : block_reduce_bytes<threads, V>;
};

// The threads that share a row, seen from one of them.
template <class P> class Team {
 public:
  WHENCE_HD explicit Team(Thread& t) : t_(t) {}
  WHENCE_HD index_t row() const { return P::by_warp ? t_.block() * P::rows_per_block + t_.warp() : t_.block(); }
  WHENCE_HD int member() const { return P::by_warp ? t_.lane() : t_.index(); }
  template <class V, class Join> WHENCE_HD V reduce(V value, const Join& join) const {
    if constexpr (P::by_warp)
      return warp_reduce(t_, value, join);
    else
      return block_reduce<P::threads>(t_, value, join);
  }
  // f(p, j) for each of this thread's packs: the p-th that it holds, which begins at column j.
  template <class F> WHENCE_HD void each_pack(index_t width, const F& f) const {
    const index_t first = static_cast<index_t>(member()) * P::pack;
    constexpr index_t step = P::team * P::pack;
    if constexpr (P::packs > 0) {
      for (int p = 0; p < P::packs; ++p)
        if (first + p * step < width) f(p, first + p * step);
    } else {
      for (index_t j = first; j < width; j += step) f(0, j);
    }
  }

 private:
  Thread& t_;
};

// One thread's part of a row: in its registers after hold(), or read where it is asked for.
template <class T, class P> class RowPart {
 public:
  using C = compute_t<T>;
  using Pack = Numbers<C, P::pack>;
  WHENCE_HD RowPart(Global<const T> from, index_t begin) : from_(from), begin_(begin) {}
  WHENCE_HD void hold(const Team<P>& team, index_t width) {
    if constexpr (P::packs > 0)
      team.each_pack(width, [this](int p, index_t j) { held_[p] = load_numbers<C, P::pack>(from_, begin_ + j); });
  }
  // The same of what the kernel has just made and stored.
  WHENCE_HD void hold(int p, const Pack& pack) {
    if constexpr (P::packs > 0) held_[p] = pack;
  }
  WHENCE_HD Pack operator()(int p, index_t j) const {
    if constexpr (P::packs > 0)
      return held_[p];
    else
      return load_numbers<C, P::pack>(from_, begin_ + j);
  }

 private:
  Global<const T> from_;
  index_t begin_;
  Pack held_[P::packs > 0 ? P::packs : 1];
};

// Whether every row of these tensors begins at a multiple of 16 bytes and is a whole number of packs.
// Undefined tensors do not matter.
template <class T> bool rows_fit_packs(index_t width, std::initializer_list<const Tensor*> tensors) {
  return width % pack_size<T> == 0 && std::all_of(tensors.begin(), tensors.end(), [](const Tensor* x) {
    return !x->defined() || begins_with_pack(*x, pack_size<T>);
  });
}

// How much of a row kernels hold in registers: 32 or 128 bytes of each thread, so that two rows (a gradient's) stay
// below 128 registers. Half of the latter where numbers come one by one: each then has an address and a condition of
// its own. Rows of up to 1024 floats go to a warp: no barrier, and four rows in flight per block. Wider rows need the
// bytes in flight of a whole block. Rows wider than a block can hold are read again from cache in each pass.
template <class T, int pack, class F> void with_held_part_of_pack(index_t width, const F& run) {
  constexpr int number = static_cast<int>(sizeof(compute_t<T>));
  constexpr int few = std::max(32 / number / pack, 1), many = (pack > 1 ? 128 : 64) / number / pack;
  if (width <= 32 * few * pack) return run(Part<32, pack, few>{});
  if (width <= 32 * many * pack) return run(Part<32, pack, many>{});
  if (width <= 256 * many * pack) return run(Part<256, pack, many>{});
  run(Part<512, pack, 0>{});
}
template <class T, class F> void with_held_part(index_t width, bool packs, const F& run) {
  if constexpr (pack_size<T> > 1) {
    if (packs) return with_held_part_of_pack<T, pack_size<T>>(width, run);
  }
  with_held_part_of_pack<T, 1>(width, run);
}

// For kernels that pass over a row once: a warp up to 1024 numbers, as above, else a block of `wide` threads.
template <class T, int wide, class F> void with_passing_part(index_t width, bool packs, const F& run) {
  const bool by_warp = width <= 1024;
  if constexpr (pack_size<T> > 1) {
    if (packs) return by_warp ? run(Part<32, pack_size<T>, 0>{}) : run(Part<wide, pack_size<T>, 0>{});
  }
  by_warp ? run(Part<32, 1, 0>{}) : run(Part<wide, 1, 0>{});
}

}  // namespace whence::gpu

// Distribution of rows over the threads of a kernel: a warp or a block per row, and each thread's part of its row.
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

// RowSplit divides rows: `team` threads, a warp or a whole block, share a row; each reads and writes `pack` neighbours
// in one access, and keeps `packs` of these in registers (0: the row is too wide, and is read again in each pass).
// Neighbouring threads take neighbouring packs, then all move on by the whole team's length, so that every access of a
// warp is contiguous. A row of 200 floats, by a warp that takes packs of 4 and keeps 2 of them:
//   column  0..3   4..7   8..11   ...  124..127 | 128..131  132..135  ...  196..199
//   lane    0      1      2            31       | 0         1              17            lanes 18 to 31 have one pack
//   held    the first pack, p = 0               | the second, p = 1
template <int team_threads, int pack_length, int packs_held> struct RowSplit {
  static constexpr int team = team_threads, pack = pack_length, packs = packs_held;
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
  // Calls f(p, j) for each of this thread's packs: the p-th that it holds, which begins at column j.
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

// Reads a row as it is stored; 16-bit numbers then take half of the registers of their compute type.
template <class T> struct StoredRow {
  Global<const T> from;
  index_t begin;
  template <int N> WHENCE_HD Pack<T, N> read(index_t j) const { return load_pack<N>(from, begin + j); }
};

template <class C, int N> WHENCE_HD const Numbers<C, N>& numbers_of(const Numbers<C, N>& numbers) { return numbers; }
template <class T, int N> WHENCE_HD Numbers<compute_t<T>, N> numbers_of(const Pack<T, N>& pack) {
  Numbers<compute_t<T>, N> numbers;
  for (int k = 0; k < N; ++k) numbers.of[k] = from_stored<compute_t<T>>(pack.of[k]);
  return numbers;
}

// One thread's part of a row, read by `Row`: in its registers after hold(), or read at each access.
template <class P, class Row> class RowPart {
 public:
  using Held = decltype(std::declval<Row>().template read<P::pack>(0));
  WHENCE_HD explicit RowPart(const Row& row) : row_(row) {}
  WHENCE_HD void hold(const Team<P>& team, index_t width) {
    if constexpr (P::packs > 0)
      team.each_pack(width, [this](int p, index_t j) { held_[p] = row_.template read<P::pack>(j); });
  }
  // Replaces a pack by the kernel's result.
  WHENCE_HD void hold(int p, const Held& pack) {
    if constexpr (P::packs > 0) held_[p] = pack;
  }
  WHENCE_HD auto operator()(int p, index_t j) const {
    if constexpr (P::packs > 0)
      return numbers_of(held_[p]);
    else
      return numbers_of(row_.template read<P::pack>(j));
  }

 private:
  Row row_;
  Held held_[P::packs > 0 ? P::packs : 1];
};

// True if every row of these tensors begins at a multiple of 16 bytes and is a whole number of packs. Undefined tensors
// do not matter.
template <class T> bool rows_fit_packs(index_t width, std::initializer_list<const Tensor*> tensors) {
  return width % pack_size<T> == 0 && std::all_of(tensors.begin(), tensors.end(), [](const Tensor* x) {
    return !x->defined() || begins_with_pack(*x, pack_size<T>);
  });
}

// RowBudget: the bytes of its rows that a thread holds in registers: `few` for short rows; `many` if it reads packs,
// `single` for single numbers, each with an address and a condition. `block`: the threads that share a row too wide to
// be held, which is read again from cache in each pass. few_by_block: true if `few` is worth separate kernels for rows
// that a block shares.
struct RowBudget {
  int few, many, single, block;
  bool few_by_block = false;
};
// Two rows (a gradient's) stay below 128 registers. A warp holds up to 1024 floats: no barrier, and four rows in flight
// per block. Wider rows need the bytes in flight of a whole block.
inline constexpr RowBudget one_row{.few = 32, .many = 128, .single = 64, .block = 512};
// For kernels that read a row once: a warp up to 1024 numbers, else a block.
constexpr RowBudget passing(int block) { return {.few = 0, .many = 0, .single = 0, .block = block}; }

// Calls run(RowSplit) for rows of this width. packs: rows_fit_packs.
template <class T, RowBudget budget, class F> void with_part(index_t width, bool packs, const F& run) {
  const auto with_pack = [&]<int pack>(std::integral_constant<int, pack>) {
    constexpr int number = static_cast<int>(sizeof(compute_t<T>)), most = pack > 1 ? budget.many : budget.single;
    constexpr int few = std::max(budget.few / number / pack, 1), many = most / number / pack;
    if constexpr (most == 0) {
      if (width <= 1024) return run(RowSplit<32, pack, 0>{});
    } else {
      if (width <= 32 * few * pack) return run(RowSplit<32, pack, few>{});
      if (width <= 32 * many * pack) return run(RowSplit<32, pack, many>{});
      if constexpr (budget.few_by_block)
        if (width <= 256 * few * pack) return run(RowSplit<256, pack, few>{});
      if (width <= 256 * many * pack) return run(RowSplit<256, pack, many>{});
    }
    run(RowSplit<budget.block, pack, 0>{});
  };
  if constexpr (pack_size < T >> 1) {
    if (packs) return with_pack(std::integral_constant<int, pack_size<T>>{});
  }
  with_pack(std::integral_constant<int, 1>{});
}

// Launches make(RowSplit), a kernel that has a row per team, over rows of this width.
template <class T, RowBudget budget, class Make>
void launch_rows(index_t rows, index_t width, bool packs, const Make& make) {
  with_part<T, budget>(width, packs, [&]<class P>(P part) {
    const auto body = make(part);
    launch_kernel(body, {P::blocks(rows), body.shared_bytes});
  });
}

}  // namespace whence::gpu

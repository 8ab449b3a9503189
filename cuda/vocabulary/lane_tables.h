// Sums by row number, for one warp: tables in shared memory, one for every lane, or shared by several lanes that take
// turns. The numbers of lanes and tables alone decide who adds when, so the bits are the same on every run. No atomics.
#pragma once

#include <algorithm>

#include "cuda/vocabulary/launch_kernel.h"

namespace whence::gpu {

// How many warps a block has, and how many tables a warp, for tables of `rows` numbers; none when not even one fits.
struct TablePlan {
  static constexpr int warps = 4;
  int tables;  // of each warp: a power of two, at most 32
  std::size_t shared_bytes;

  template <class C> static TablePlan of(index_t rows) {
    constexpr std::size_t comfortable = 48 * 1024, most = 96 * 1024;
    const std::size_t one = static_cast<std::size_t>(std::max<index_t>(rows, 1)) * warps;
    if (one > most) return {0, 0};
    for (int tables = Thread::warp_size; tables > 0; tables /= 2) {
      const std::size_t bytes = shared_bytes_for<C>(one * static_cast<std::size_t>(tables));
      if (bytes <= comfortable || (tables == 1 && bytes <= most)) return {tables, bytes};
    }
    return {0, 0};
  }
};

template <class C> class LaneTables {
 public:
  // The block's memory for all its warps, zeroed by this warp for itself.
  WHENCE_HD LaneTables(Thread& t, index_t rows, int tables)
      : t_(t),
        memory_(t.template shared<C>(static_cast<int>(rows) * tables * TablePlan::warps)),
        first_(t.warp() * rows * tables),
        rows_(rows),
        tables_(tables) {
    for (index_t i = t.lane(); i < rows * tables; i += Thread::warp_size) store(memory_, first_ + i, Number<C>(C(0)));
    t.sync_warp();
  }

  // f() for every lane of the warp, never at the same time for two that share a table. All lanes take part.
  template <class F> WHENCE_HD void in_turns(const F& f) const {
    for (int turn = 0; turn < Thread::warp_size / tables_; ++turn) {
      if (t_.lane() / tables_ == turn) f();
      if (tables_ < Thread::warp_size) t_.sync_warp();
    }
  }
  // Inside in_turns.
  WHENCE_HD void add(index_t row, Number<C> value) const {
    const index_t at = first_ + row * tables_ + t_.lane() % tables_;
    store(memory_, at, load<C>(memory_, at) + value);
  }
  // f(row, sum) for every row; lanes take turns with the rows. All lanes take part.
  template <class F> WHENCE_HD void each_sum(const F& f) const {
    t_.sync_warp();
    for (index_t row = t_.lane(); row < rows_; row += Thread::warp_size) {
      Number<C> total(C(0));
      // each row begins at another table: else all lanes would read from one bank
      for (int k = 0; k < tables_; ++k) total += load<C>(memory_, first_ + row * tables_ + (k + row) % tables_);
      f(row, total);
    }
  }

 private:
  Thread& t_;
  Shared<C> memory_;
  index_t first_, rows_;
  int tables_;
};

}  // namespace whence::gpu

// Sums by row number: tables in shared memory. A warp takes one line of numbers, or several; a line's lanes have a
// table each, or share one in turn. The numbers of lanes and tables alone decide the order of additions, so the bits
// are the same on every run. No atomics.
#pragma once

#include <algorithm>

#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"

namespace whence::gpu {

// The tables of a warp, of `rows` numbers each, and the lanes of a line: the requested number, or a whole warp if there
// are fewer tables than lines. No tables if not even one fits.
struct TablePlan {
  static constexpr int warps = 4;  // of a block
  int tables, lanes;               // powers of two, at most 32
  std::size_t shared_bytes;

  template <class C> static TablePlan of(index_t rows, int lanes = Thread::warp_size) {
    constexpr std::size_t comfortable = 48 * 1024, most = 96 * 1024;
    const std::size_t one = static_cast<std::size_t>(std::max<index_t>(rows, 1)) * warps;
    if (one > most) return {0, 0, 0};
    for (int tables = Thread::warp_size; tables > 0; tables /= 2) {
      const std::size_t bytes = shared_bytes_for<C>(one * static_cast<std::size_t>(tables));
      if (bytes <= comfortable || (tables == 1 && bytes <= most))
        return {tables, tables * lanes < Thread::warp_size ? Thread::warp_size : lanes, bytes};
    }
    return {0, 0, 0};
  }
  index_t blocks(index_t lines) const { return blocks_for(lines, warps * Thread::warp_size / lanes); }
};

template <class C> class LaneTables {
 public:
  const int lanes, member;  // of the line, and this lane's index among them
  const index_t line;

  // Takes the block's memory for all its warps; each warp zeroes its own.
  WHENCE_HD LaneTables(Thread& t, index_t rows, const TablePlan& plan)
      : lanes(plan.lanes),
        member(t.lane() % lanes),
        line((t.block() * TablePlan::warps + t.warp()) * (Thread::warp_size / lanes) + t.lane() / lanes),
        t_(t),
        rows_(static_cast<int>(rows)),
        tables_(plan.tables),
        own_(tables_ * lanes / Thread::warp_size),
        rounds_(Thread::warp_size / tables_),
        round_(member / own_),
        memory_(t.template shared<C>(rows_ * tables_ * TablePlan::warps)),
        first_(t.warp() * rows_ * tables_ + t.lane() / lanes * own_),
        mine_(first_ + member % own_) {
    const int begin = t.warp() * rows_ * tables_;
    for (int i = t.lane(); i < rows_ * tables_; i += Thread::warp_size) store(memory_, begin + i, Number<C>(C(0)));
    t.sync_warp();
  }

  // Calls f() for every lane of the warp, never at the same time for two that share a table. All lanes take part.
  template <class F> WHENCE_HD void one_at_a_time(const F& f) const {
    for (int round = 0; round < rounds_; ++round) {
      if (round_ == round) f();
      if (rounds_ > 1) t_.sync_warp();
    }
  }
  // REQUIRES: called inside one_at_a_time.
  WHENCE_HD void add(index_t row, Number<C> value) const {
    const int at = mine_ + static_cast<int>(row) * tables_;
    store(memory_, at, load<C>(memory_, at) + value);
  }
  // Calls f(row, sum) for every row of the line, distributed over its lanes. All lanes take part.
  template <class F> WHENCE_HD void each_sum(const F& f) const {
    t_.sync_warp();
    for (int row = member; row < rows_; row += lanes) {
      Number<C> total(C(0));
      const int begin = row * tables_ / Thread::warp_size;  // otherwise many lanes would read from one bank
      for (int k = 0; k < own_; ++k) total += load<C>(memory_, first_ + row * tables_ + ((begin + k) & (own_ - 1)));
      f(row, total);
    }
  }

 private:
  Thread& t_;
  int rows_, tables_, own_, rounds_, round_;  // own_: tables of a line
  Shared<C> memory_;
  int first_, mine_;  // the first number of the line's tables, and of this lane's
};

}  // namespace whence::gpu

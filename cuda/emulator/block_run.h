// One block of a launch while it runs: its threads on their fibers, the barriers they wait at, and the order of
// accesses between warps.
#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "cuda/emulator/fibers.h"
#include "cuda/emulator/order.h"
#include "cuda/emulator/running.h"

namespace whence::gpu {
class Thread;
}

namespace whence::gpu::emulator {

// A kernel without its type: call(body, thread).
struct Code {
  const void* body;
  void (*call)(const void* body, Thread& thread);
};

// The reason why a thread waits.
enum class Meeting : unsigned char {
  none,
  sync,
  sync_warp,
  shuffle,
  shuffle_xor,
  shuffle_up,
  mma,
  ldmatrix,
  ldmatrix_trans,
  movmatrix,
  stmatrix_trans
};

class BlockRun {
 public:
  // Runs the block that `running` names, of facts.threads threads. Throws Error if it stopped; the object can be used
  // again.
  void run(const Code& code, int threads, Order& order);

  // Called by the running thread; each returns when the thread goes on.
  void sync(const Site& at);
  // All lanes of the warp meet and exchange values. With `together`, the last lane to arrive calls it for all: values
  // are then addresses of each lane's inputs and outputs.
  struct Exchange {
    const std::uint64_t* values;  // one of each lane
    int lanes;
  };
  using Together = void (*)(const std::uint64_t* values);
  Exchange meet_warp(Meeting meeting, std::uint64_t value, const Site& at, Together together = nullptr);

  // True if `stamp`, a segment of a thread of this block, may be unordered with the running thread.
  bool unordered(std::uint64_t stamp) const;
  int thread_of(std::uint64_t stamp) const;
  bool on_guard_page(const void* address) const { return current_ && current_->guards(address); }

 private:
  enum class State : unsigned char { fresh, ready, waiting, ended };
  struct Place {
    Meeting meeting = Meeting::none;
    Site at;
    int thread = 0;
  };
  struct Task {
    Fiber* fiber = nullptr;
    State state = State::fresh;
    Place place;
  };
  struct Warp {
    int first = 0, lanes = 0, arrived = 0, buffer = 0;
    Place place;  // of the first lane that arrived
    // Two sets are used in turn: a fast lane may write its next value before a slow one has read.
    std::uint64_t values[2][32] = {};
    std::uint64_t segment = 0;
    std::uint32_t clock = 1;      // changed at every barrier, as the segment
    std::uint32_t seen[32] = {};  // for every warp, the clock up to which its accesses are before this warp's
  };
  struct Segment {
    int warp;
    std::uint32_t clock;
  };

  static void work();      // the loop of a fiber: one thread after the other
  void start(int thread);  // on the running fiber
  int next();              // a thread that can go on, or -1
  void go_on_with(int thread);
  void make_running(int thread);
  void wait();
  void require_all_ended();
  void release(std::vector<int>& threads);
  void new_segment(int warp);
  void order_warps(const std::vector<int>& warps);  // orders all earlier accesses of these warps before all later ones
  void reset(int threads);
  void settle_costs();
  Fiber* idle_fiber();
  [[noreturn]] void mixed(const Place& other, const Place& own);
  std::string who_waits() const;

  const Code* code_ = nullptr;
  Order* order_ = nullptr;
  int threads_ = 0;
  std::vector<Task> tasks_;
  std::vector<Warp> warps_;
  std::vector<Segment> segments_;
  std::vector<int> fresh_, ready_, scratch_;  // fresh_ is taken from its end
  std::size_t ready_begin_ = 0;
  int arrived_ = 0;
  Place place_;
  std::exception_ptr failure_;

  Fiber main_;
  Fiber* current_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

std::uint64_t take_segment();  // a new one

}  // namespace whence::gpu::emulator

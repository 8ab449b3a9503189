// One block of a launch while it runs: its threads on their fibers, the barriers they wait at, and the order of
// accesses between warps.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "cuda/emulator/fibers.h"
#include "cuda/emulator/order.h"
#include "cuda/emulator/running.h"

namespace whence::gpu {
class Thread;
}

namespace whence::gpu::emulator {

using Code = std::function<void(Thread&)>;  // a kernel without its type

// An asynchronous copy into shared memory, and those of a thread that it has not waited for (copies_ahead.h).
struct CopyAhead {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes, size;
  int group;
  Site at;
};
struct CopiesAhead {
  std::vector<CopyAhead> in_flight;  // the oldest first
  int group = 0;                     // the group that is not committed yet
};

class BlockRun {
 public:
  // Runs the block that `running` names, of facts.threads threads. Throws Error if it stopped; the object can be used
  // again.
  void run(const Code& code, int threads, Order& order);

  // Called by the running thread; each returns when the thread goes on.
  void sync(const Site& at);
  void sync_warp(const Site& at);
  // All lanes of the warp meet in the function called `name`, and get the values of all. The last lane to arrive calls
  // `together` before: values may be addresses of each lane's inputs and outputs.
  using Together = void (*)(const std::uint64_t* values);
  const std::uint64_t* meet_warp(const char* name, std::uint64_t value, const Site& at, Together together);

  // True if `stamp`, a segment of a thread of this block, may be unordered with the running thread.
  bool unordered(std::uint64_t stamp) const;
  int thread_of(std::uint64_t stamp) const;
  CopiesAhead& copies() { return task_of(running.thread).copies; }  // of the running thread

 private:
  struct Place {
    const char* name = nullptr;  // of the function that a thread waits in
    Site at;
    int thread = 0;
  };
  struct Task {
    Fiber* fiber = nullptr;
    bool ended = false;
    Place place = {};
    CopiesAhead copies = {};
  };
  // The threads that wait for each other: those of a warp, or of the block.
  struct Group {
    int begin = 0, end = 0, arrived = 0;
    Place place = {};  // of the first that arrived
  };
  struct Warp {
    Group lanes;
    int buffer = 0;
    // Two sets are used in turn: a fast lane may write its next value before a slow one has read.
    std::uint64_t values[2][warp_size] = {};
    std::uint64_t segment = 0;
    std::uint32_t clock = 0;              // changed at every barrier, as the segment
    std::uint32_t seen[most_warps] = {};  // for every warp, the clock up to which its accesses are before this warp's
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
  bool arrive(Group& group, const char* name, const Site& at);  // true for the last thread of the group
  void release(const Group& group);
  void wait();
  void require_all_ended();
  void new_segment(int warp);
  void order_accesses(const Group& group);  // orders all earlier accesses of its warps before all later ones
  void reset(int threads);
  void settle_costs(const Group& group);
  Fiber* idle_fiber();
  std::string who_waits() const;

  Task& task_of(int thread) { return tasks_[static_cast<std::size_t>(thread)]; }
  Warp& warp_of(int thread) { return warps_[static_cast<std::size_t>(thread / warp_size)]; }
  const Segment& segment_of(std::uint64_t stamp) const {
    return segments_[(stamp >> lane_bits) - (running.block_first >> lane_bits)];
  }

  const Code* code_ = nullptr;
  Order* order_ = nullptr;
  Group all_;
  std::vector<Task> tasks_;
  std::vector<Warp> warps_;
  std::vector<Segment> segments_;
  std::vector<int> fresh_, ready_;  // fresh_ is taken from its end
  std::size_t ready_begin_ = 0;
  std::exception_ptr failure_;

  Fiber main_;
  Fiber* current_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

std::uint64_t take_segment();  // a new one

}  // namespace whence::gpu::emulator

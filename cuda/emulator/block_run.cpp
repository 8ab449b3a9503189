// Scheduling of a block's threads. A fiber runs one thread after the other until one waits; then another fiber
// continues. So threads that never wait share one stack, and a block without barriers costs two switches.
#include "cuda/emulator/block_run.h"

#include <map>

#include "cuda/emulator/copies_ahead.h"
#include "cuda/emulator/costs.h"
#include "cuda/emulator/thread.h"

namespace whence::gpu::emulator {
namespace {

std::uint64_t next_segment = 1;

}  // namespace

std::uint64_t take_segment() { return next_segment++; }

// ---- Scheduling.

void BlockRun::run(const Code& code, int threads, Order& order) {
  code_ = &code, order_ = &order;
  reset(threads);
  current_ = &main_;
  go_on_with(next());
  current_ = nullptr;
  if (!failure_) return settle_costs(all_);
  idle_.clear(), BlockMemory::instance().forget();
  for (const auto& fiber : fibers_) fiber->restart(), idle_.push_back(fiber.get());
  std::rethrow_exception(std::exchange(failure_, nullptr));
}

// The lanes of each warp have reached one point.
void BlockRun::settle_costs(const Group& group) {
  if (!running.costs) return;
  for (int first = group.begin; first < group.end; first += warp_size) running.costs->settle(first);
}

void BlockRun::reset(int threads) {
  if (running.costs) running.costs->begin_block(threads);
  all_ = {.end = threads};
  tasks_.assign(static_cast<std::size_t>(threads), Task{});
  warps_.assign(static_cast<std::size_t>(threads / warp_size), Warp{});
  segments_.clear();
  for (int first = 0; first < threads; first += warp_size) {
    warp_of(first).lanes = {.begin = first, .end = first + warp_size};
    new_segment(first / warp_size);
  }
  running.block_first = warps_[0].segment << lane_bits;
  fresh_.resize(static_cast<std::size_t>(threads));
  std::iota(fresh_.begin(), fresh_.end(), 0);
  order_->arrange(fresh_);
  std::reverse(fresh_.begin(), fresh_.end());
  ready_.clear(), ready_begin_ = 0;
}

int BlockRun::next() {
  const bool any_ready = ready_begin_ < ready_.size(), any_fresh = !fresh_.empty();
  if (any_ready && !(any_fresh && order_->random() && order_->draw(2) == 0)) {
    const int thread = ready_[ready_begin_++];
    if (ready_begin_ == ready_.size()) ready_.clear(), ready_begin_ = 0;
    return thread;
  }
  if (!any_fresh) return -1;
  const int thread = fresh_.back();
  fresh_.pop_back();
  return thread;
}

Fiber* BlockRun::idle_fiber() {
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(&BlockRun::work));
    return fibers_.back().get();
  }
  Fiber* const fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

void BlockRun::make_running(int thread) {
  running.thread = thread;
  running.stamp = warp_of(thread).segment << lane_bits | static_cast<std::uint64_t>(thread % warp_size);
}

// Switches from the running fiber to a thread's, or to run() if no thread can go on.
void BlockRun::go_on_with(int thread) {
  Fiber *const here = current_, *there = &main_;
  if (thread >= 0) {
    Fiber* const own = task_of(thread).fiber;
    there = own ? own : idle_fiber();
    make_running(thread);
  }
  if (there == here) return;
  current_ = there;
  Fiber::change(*here, *there);
}

void BlockRun::work() {
  Fiber::begun();
  for (;;) {
    BlockRun& block = *running.block_run;  // never changes, but the compiler must not know it
    block.start(running.thread);
    int thread = block.failure_ ? -1 : block.next();
    if (thread < 0 && !block.failure_) block.require_all_ended();
    if (thread >= 0 && !block.task_of(thread).fiber) {
      block.make_running(thread);
      continue;
    }
    block.idle_.push_back(block.current_);
    block.go_on_with(thread);
  }
}

void BlockRun::start(int thread) {
  try {
    Thread view(running.block, running.facts->blocks, thread);
    (*code_)(view);
    require_no_copies();
  } catch (...) { failure_ = std::current_exception(); }
  task_of(thread).ended = true;
}

void BlockRun::require_all_ended() {
  const auto waiting = std::find_if(tasks_.begin(), tasks_.end(), [](const Task& task) { return !task.ended; });
  if (waiting == tasks_.end()) return;
  running.thread = static_cast<int>(waiting - tasks_.begin());
  try {
    stop(waiting->place.at, who_waits());
  } catch (...) { failure_ = std::current_exception(); }
}

// ---- The order of accesses.

void BlockRun::new_segment(int warp) {
  Warp& w = warps_[static_cast<std::size_t>(warp)];
  ++w.clock;
  w.segment = take_segment();
  segments_.push_back({warp, w.clock});
}

void BlockRun::order_accesses(const Group& group) {
  std::uint32_t seen[most_warps] = {};
  for (int first = group.begin; first < group.end; first += warp_size) {
    Warp& warp = warp_of(first);
    warp.seen[first / warp_size] = warp.clock;
    for (std::size_t other = 0; other < warps_.size(); ++other) seen[other] = std::max(seen[other], warp.seen[other]);
  }
  for (int first = group.begin; first < group.end; first += warp_size) {
    std::ranges::copy(seen, warp_of(first).seen);
    new_segment(first / warp_size);
  }
}

bool BlockRun::unordered(std::uint64_t stamp) const {
  const Segment& other = segment_of(stamp);
  const int own_warp = running.thread / warp_size;
  const Warp& own = warps_[static_cast<std::size_t>(own_warp)];
  if (other.warp != own_warp) return other.clock > own.seen[other.warp];
  return other.clock == own.clock && stamp != running.stamp;
}

int BlockRun::thread_of(std::uint64_t stamp) const {
  return segment_of(stamp).warp * warp_size + static_cast<int>(stamp & (warp_size - 1));
}

// ---- Meetings.

bool BlockRun::arrive(Group& group, const char* name, const Site& at) {
  const Place own = task_of(running.thread).place = {name, at, running.thread};
  if (group.arrived == 0) group.place = own;
  const Place& other = group.place;
  if (other.at.line() != at.line() || other.at.column() != at.column())
    stop(at, to_text("meets ", name, ", thread ", other.thread, " waits in ", other.name, " at ",
                 whence::to_string(other.at), "; all ", &group == &all_ ? "threads of the block" : "lanes of a warp",
                 " are required in the same one"));
  if (++group.arrived < group.end - group.begin) return false;
  group.arrived = 0;
  settle_costs(group);
  return true;
}

void BlockRun::release(const Group& group) {
  std::vector<int> threads(static_cast<std::size_t>(group.end - group.begin));
  std::iota(threads.begin(), threads.end(), group.begin);
  order_->arrange(threads);
  ready_.insert(ready_.end(), threads.begin(), threads.end());
}

void BlockRun::wait() {
  Task& self = task_of(running.thread);
  self.fiber = current_;
  const int thread = next();
  if (thread < 0) stop(self.place.at, who_waits());
  go_on_with(thread);
}

void BlockRun::sync(const Site& at) {
  if (arrive(all_, "sync()", at)) {
    ++running.now.barriers;
    order_accesses(all_);
    release(all_);
  }
  wait();
}

void BlockRun::sync_warp(const Site& at) {
  Group& lanes = warp_of(running.thread).lanes;
  if (arrive(lanes, "sync_warp()", at)) {
    ++running.now.warp_syncs;
    order_accesses(lanes);
    release(lanes);
  }
  wait();
}

const std::uint64_t* BlockRun::meet_warp(const char* name, std::uint64_t value, const Site& at, Together together) {
  Warp& warp = warp_of(running.thread);
  std::uint64_t* const values = warp.values[warp.buffer];
  values[running.thread % warp_size] = value;
  if (arrive(warp.lanes, name, at)) {
    warp.buffer ^= 1;
    together(values);
    release(warp.lanes);
  }
  wait();
  return values;
}

// ---- Texts of errors between the threads of a block.

void stop(const Site& at, const std::string& message) {
  throw Error(error_at_call_site(running.facts ? running.facts->kernel : "emulator",
      to_text(whence::to_string(at), ": thread ", running.thread, " of block ", running.block, ": ", message)));
}

// For a block in which no thread can go on: "64 threads, of which the first is 0, wait in sync() at x.cu:12; 64
// threads, of which the first is 64, have ended; ..."
std::string BlockRun::who_waits() const {
  struct Alike {
    int count = 0, first = 0;
  };
  std::map<std::string, Alike> groups;
  for (std::size_t thread = 0; thread < tasks_.size(); ++thread) {
    const Task& task = tasks_[thread];
    const Place& place = task.place;
    const std::string what =
        task.ended ? "ended without it" : to_text("wait in ", place.name, " at ", whence::to_string(place.at));
    Alike& group = groups[what];
    if (group.count++ == 0) group.first = static_cast<int>(thread);
  }
  std::string text = "a barrier that part of the block never reaches: ";
  for (const auto& [what, group] : groups)
    text += to_text(
        "thread ", group.first, group.count > 1 ? to_text(" and ", group.count - 1, " others ") : " ", what, "; ");
  return text + "all threads that a barrier is for are required to reach it";
}

}  // namespace whence::gpu::emulator

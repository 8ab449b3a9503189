// Scheduling of a block's threads. A fiber runs one thread after the other until one waits; then another fiber
// continues. So threads that never wait share one stack, and a block without barriers costs two switches.
#include "cuda/emulator/block_run.h"

#include <map>

#include "cuda/emulator/copies_ahead.h"
#include "cuda/emulator/costs.h"
#include "cuda/emulator/thread.h"

namespace whence::gpu::emulator {
namespace {

constexpr int warp_size = 32;
std::uint64_t next_segment = 1;

const char* text_of(Meeting meeting) {
  const char* const names[] = {"nothing", "sync()", "sync_warp()", "shuffle", "shuffle_xor", "shuffle_up", "mma",
      "ldmatrix", "ldmatrix_trans", "movmatrix", "stmatrix_trans"};
  return names[static_cast<std::size_t>(meeting)];
}

}  // namespace

std::uint64_t take_segment() { return next_segment++; }

// ---- Scheduling.

void BlockRun::run(const Code& code, int threads, Order& order) {
  code_ = &code, order_ = &order, threads_ = threads;
  reset(threads);
  current_ = &main_;
  go_on_with(next());
  current_ = nullptr;
  if (!failure_) return settle_costs();
  idle_.clear(), BlockMemory::instance().forget();
  for (const auto& fiber : fibers_) fiber->restart(), idle_.push_back(fiber.get());
  std::rethrow_exception(std::exchange(failure_, nullptr));
}

// All lanes of all warps have reached one point.
void BlockRun::settle_costs() {
  if (!running.costs) return;
  for (const Warp& warp : warps_) running.costs->settle(warp.first, warp.lanes);
}

void BlockRun::reset(int threads) {
  if (running.costs) running.costs->begin_block(threads);
  CopiesAhead::instance().begin_block(threads);
  tasks_.assign(static_cast<std::size_t>(threads), Task{});
  warps_.resize(static_cast<std::size_t>((threads + warp_size - 1) / warp_size));
  segments_.clear();
  for (std::size_t w = 0; w < warps_.size(); ++w) {
    const int first = static_cast<int>(w) * warp_size;
    warps_[w] = Warp{};
    warps_[w].first = first, warps_[w].lanes = std::min(warp_size, threads - first), warps_[w].clock = 0;
    new_segment(static_cast<int>(w));
  }
  running.block_first = warps_[0].segment << lane_bits;
  fresh_.resize(static_cast<std::size_t>(threads));
  std::iota(fresh_.begin(), fresh_.end(), 0);
  order_->arrange(fresh_);
  std::reverse(fresh_.begin(), fresh_.end());
  ready_.clear(), ready_begin_ = 0, arrived_ = 0;
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
  const int warp = thread / warp_size;
  running.thread = thread;
  running.stamp = warps_[static_cast<std::size_t>(warp)].segment << lane_bits |
                  static_cast<std::uint64_t>(thread - warp * warp_size);
}

// Switches from the running fiber to a thread's, or to run() if no thread can go on.
void BlockRun::go_on_with(int thread) {
  Fiber *const here = current_, *there = &main_;
  if (thread >= 0) {
    Task& task = tasks_[static_cast<std::size_t>(thread)];
    there = task.fiber ? task.fiber : idle_fiber();
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
    if (thread >= 0 && !block.tasks_[static_cast<std::size_t>(thread)].fiber) {
      block.make_running(thread);
      continue;
    }
    block.idle_.push_back(block.current_);
    block.go_on_with(thread);
  }
}

void BlockRun::start(int thread) {
  Task& task = tasks_[static_cast<std::size_t>(thread)];
  try {
    Thread view(running.block, running.facts->blocks, thread);
    code_->call(code_->body, view);
    CopiesAhead::instance().require_none();
  } catch (...) { failure_ = std::current_exception(); }
  task.state = State::ended;
}

void BlockRun::require_all_ended() {
  const auto waiting =
      std::find_if(tasks_.begin(), tasks_.end(), [](const Task& task) { return task.state != State::ended; });
  if (waiting == tasks_.end()) return;
  running.thread = static_cast<int>(waiting - tasks_.begin());
  try {
    stop(waiting->place.at, who_waits());
  } catch (...) { failure_ = std::current_exception(); }
}

void BlockRun::wait() {
  const int self = running.thread;
  tasks_[static_cast<std::size_t>(self)].fiber = current_;
  const int thread = next();
  if (thread < 0) stop(tasks_[static_cast<std::size_t>(self)].place.at, who_waits());
  go_on_with(thread);
}

void BlockRun::release(std::vector<int>& threads) {
  order_->arrange(threads);
  for (const int thread : threads) {
    tasks_[static_cast<std::size_t>(thread)].state = State::ready;
    ready_.push_back(thread);
  }
}

// ---- The order of accesses.

void BlockRun::new_segment(int warp) {
  Warp& w = warps_[static_cast<std::size_t>(warp)];
  ++w.clock;
  w.segment = take_segment();
  segments_.push_back({warp, w.clock});
}

void BlockRun::order_warps(const std::vector<int>& warps) {
  std::uint32_t seen[32] = {};
  for (const int k : warps) {
    Warp& w = warps_[static_cast<std::size_t>(k)];
    w.seen[k] = w.clock;
    for (std::size_t other = 0; other < warps_.size(); ++other) seen[other] = std::max(seen[other], w.seen[other]);
  }
  for (const int k : warps) {
    std::copy(seen, seen + warp_size, warps_[static_cast<std::size_t>(k)].seen);
    new_segment(k);
  }
}

bool BlockRun::unordered(std::uint64_t stamp) const {
  const Segment& other = segments_[(stamp >> lane_bits) - (running.block_first >> lane_bits)];
  const int own_warp = running.thread / warp_size;
  const Warp& own = warps_[static_cast<std::size_t>(own_warp)];
  if (other.warp != own_warp) return other.clock > own.seen[other.warp];
  return other.clock == own.clock && stamp != running.stamp;
}

int BlockRun::thread_of(std::uint64_t stamp) const {
  const Segment& other = segments_[(stamp >> lane_bits) - (running.block_first >> lane_bits)];
  return other.warp * warp_size + static_cast<int>(stamp & (warp_size - 1));
}

// ---- Meetings.

void BlockRun::sync(const Site& at) {
  const Place own{Meeting::sync, at, running.thread};
  Task& task = tasks_[static_cast<std::size_t>(running.thread)];
  task.state = State::waiting, task.place = own;
  if (arrived_ == 0) place_ = own;
  if (place_.at.line() != at.line() || place_.at.column() != at.column()) mixed(place_, own);
  if (++arrived_ == threads_) {
    arrived_ = 0;
    ++running.now.barriers;
    settle_costs();
    scratch_.resize(warps_.size());
    std::iota(scratch_.begin(), scratch_.end(), 0);
    order_warps(scratch_);
    scratch_.resize(static_cast<std::size_t>(threads_));
    std::iota(scratch_.begin(), scratch_.end(), 0);
    release(scratch_);
  }
  wait();
}

BlockRun::Exchange BlockRun::meet_warp(Meeting meeting, std::uint64_t value, const Site& at, Together together) {
  const Place own{meeting, at, running.thread};
  const int index = running.thread / warp_size;
  Warp& warp = warps_[static_cast<std::size_t>(index)];
  const int lane = running.thread - warp.first, buffer = warp.buffer;
  Task& task = tasks_[static_cast<std::size_t>(running.thread)];
  task.state = State::waiting, task.place = own;
  if (warp.arrived == 0) warp.place = own;
  if (warp.place.meeting != meeting || warp.place.at.line() != at.line() || warp.place.at.column() != at.column())
    mixed(warp.place, own);
  warp.values[buffer][lane] = value;
  if (++warp.arrived == warp.lanes) {
    warp.arrived = 0, warp.buffer ^= 1;
    if (running.costs) running.costs->settle(warp.first, warp.lanes);
    if (meeting == Meeting::sync_warp) scratch_.assign(1, index), order_warps(scratch_);
    if (together)
      together(warp.values[buffer]);
    else
      ++(meeting == Meeting::sync_warp ? running.now.warp_syncs : running.now.shuffles);
    scratch_.resize(static_cast<std::size_t>(warp.lanes));
    std::iota(scratch_.begin(), scratch_.end(), warp.first);
    release(scratch_);
  }
  wait();
  return {warp.values[buffer], warp.lanes};
}

// ---- Texts of errors between the threads of a block.

void stop(const Site& at, const std::string& message) {
  throw Error(error_at_call_site(running.facts ? running.facts->kernel : "emulator",
      to_text(whence::to_string(at), ": thread ", running.thread, " of block ", running.block, ": ", message)));
}

void BlockRun::mixed(const Place& other, const Place& own) {
  stop(own.at, to_text("meets ", text_of(own.meeting), ", thread ", other.thread, " waits in ", text_of(other.meeting),
                   " at ", whence::to_string(other.at),
                   own.meeting >= Meeting::sync_warp ? "; all lanes of a warp are required in the same one"
                                                     : "; all threads of the block are required in the same one"));
}

// For a block in which no thread can go on: "64 threads, of which the first is 0, wait in sync() at x.cu:12; 64
// threads, of which the first is 64, have ended; ..."
std::string BlockRun::who_waits() const {
  struct Group {
    int count = 0, first = 0;
  };
  std::map<std::string, Group> groups;
  for (std::size_t thread = 0; thread < tasks_.size(); ++thread) {
    const Task& task = tasks_[thread];
    const Place& place = task.place;
    const std::string what = task.state == State::ended
                                 ? "ended without it"
                                 : to_text("wait in ", text_of(place.meeting), " at ", whence::to_string(place.at));
    Group& group = groups[what];
    if (group.count++ == 0) group.first = static_cast<int>(thread);
  }
  std::string text = "a barrier that part of the block never reaches: ";
  for (const auto& [what, group] : groups)
    text += to_text(
        "thread ", group.first, group.count > 1 ? to_text(" and ", group.count - 1, " others ") : " ", what, "; ");
  return text + "all threads that a barrier is for are required to reach it";
}

}  // namespace whence::gpu::emulator

// Note [Threads that wait]
// A thread without work spins for a moment, because the next loop of a training step is often a few microseconds away,
// and then sleeps. It never spins for long: on a shared machine a spinning thread takes the core from the thread it
// waits for. Chunks are handed out one by one, and the caller takes them too. So a helper that the system has suspended
// delays one chunk at most, and one that never woke delays nothing.
#include "tensor/cpu/threads.h"

#include <pthread.h>
#if defined(__linux__) && !defined(WHENCE_PLAIN_SYSTEM)
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/subnormals.h"

namespace whence {
namespace {

thread_local constinit bool inside_parallel_for = false;

// The helpers of a process. One loop at a time uses them.
class Helpers {
 public:
  // Returns false if another thread's loop has the helpers.
  bool share(index_t chunks, void (*run_chunk)(const void*, index_t), const void* body) {
    const std::unique_lock lock(sharing_, std::try_to_lock);
    if (!lock.owns_lock() || chunks > most_chunks) return false;
    const auto wanted = static_cast<std::uint64_t>(std::min<index_t>(threads() - 1, chunks - 1));
    while (started_ < wanted && start_one()) {}
    run_chunk_ = run_chunk, body_ = body, chunks_ = static_cast<std::uint64_t>(chunks), control_ = float_control();
    taken_.store(0, std::memory_order_relaxed);
    const std::uint64_t loop = (state_.load(std::memory_order_relaxed) >> loop_shift) + 1;
    state_.store((loop << loop_shift) | (std::min<std::uint64_t>(wanted, started_) * one_seat));
    if (sleeping_.load() > 0) {
      { const std::scoped_lock awake(sleep_); }
      wake_.notify_all();
    }
    run_chunks(from_front);
    state_.fetch_and(~seats_mask);  // helpers that have not joined by now need not join
    wait_for_helpers();
    return true;
  }

 private:
  // state_: the number of the loop | how many helpers may still join it | how many have joined.
  static constexpr std::uint64_t joined_mask = 0xffff, one_seat = 0x10000, seats_mask = 0xffff0000;
  static constexpr int loop_shift = 32;
  // taken_: chunks taken from the back | from the front. Each side may count a little too far.
  static constexpr std::uint64_t from_front = 1, from_back = std::uint64_t{1} << 32;
  static constexpr index_t most_chunks = index_t{1} << 30;

  // The caller takes chunks from the front and helpers from the back, so that a thread meets the same numbers in
  // consecutive loops and finds them in its own cache. `one`: from_front or from_back.
  void run_chunks(std::uint64_t one) {
    const std::uint64_t chunks = chunks_;
    while (true) {
      const std::uint64_t taken = taken_.fetch_add(one, std::memory_order_relaxed);
      const std::uint64_t ahead = taken % from_back, behind = taken / from_back;
      if (ahead + behind >= chunks) return;
      run_chunk_(body_, static_cast<index_t>(one == from_front ? ahead : chunks - 1 - behind));
    }
  }

  void wait_for_helpers() {
    const auto alone = [this] { return (state_.load() & joined_mask) == 0; };
    if (spin_until(alone)) return;
    std::unique_lock lock(sleep_);
    caller_sleeps_.exchange(true);  // not a store: qemu's aarch64 lets alone's load pass a store, and a wake-up is lost
    done_.wait(lock, alone);
    caller_sleeps_.store(false);
  }

  bool start_one() {
    try {
      std::thread([this] { help(); }).detach();
    } catch (const std::exception&) { return false; }  // the system gives no more threads; those that exist will do
    ++started_;
    return true;
  }

  [[noreturn]] void help() {
    inside_parallel_for = true;
    std::uint64_t last = 0;
    while (true) {
      const auto called = [&] {
        const std::uint64_t state = state_.load();
        return (state & seats_mask) != 0 && state >> loop_shift != last;
      };
      if (!spin_until(called)) {
        std::unique_lock lock(sleep_);
        sleeping_.fetch_add(1);  // before the last check: a thread that opens a loop later sees it, and wakes us
        wake_.wait(lock, called);
        sleeping_.fetch_sub(1);
      }
      std::uint64_t state = state_.load();
      while ((state & seats_mask) != 0 && state >> loop_shift != last) {
        if (!state_.compare_exchange_weak(state, state - one_seat + 1)) continue;
        last = state >> loop_shift;
        set_float_control(control_);
        run_chunks(from_back);
        // The last helper to leave a closed loop wakes the caller if it sleeps.
        if (((state_.fetch_sub(1) - 1) & (joined_mask | seats_mask)) == 0 && caller_sleeps_.load()) {
          { const std::scoped_lock awake(sleep_); }
          done_.notify_one();
        }
        state = state_.load();
      }
    }
  }

  alignas(64) std::atomic<std::uint64_t> state_{0};
  alignas(64) std::atomic<std::uint64_t> taken_{0};
  // The current loop. Written before state_ opens it, and not again before all threads have left it.
  alignas(64) void (*run_chunk_)(const void*, index_t) = nullptr;
  const void* body_ = nullptr;
  std::uint64_t chunks_ = 0, control_ = 0;
  std::uint64_t started_ = 0;
  std::mutex sharing_;

  std::mutex sleep_;
  std::condition_variable wake_, done_;
  std::atomic<int> sleeping_{0};
  std::atomic<bool> caller_sleeps_{false};
};

// Never destroyed: helpers sleep in it until the process ends. After a fork the child has no helpers, and starts new
// ones on demand.
std::atomic<Helpers*> all_helpers{nullptr};

Helpers& helpers() {
  Helpers* current = all_helpers.load(std::memory_order_acquire);
  if (current) return *current;
  static const int once = pthread_atfork(nullptr, nullptr, [] { all_helpers.store(nullptr); });
  static_cast<void>(once);
  auto* const made = new Helpers;
  if (all_helpers.compare_exchange_strong(current, made)) return *made;
  delete made;  // another thread was first; ours is unused
  return *current;
}

int threads_at_first() {
  if (const char* const wanted = std::getenv("OMP_NUM_THREADS")) {
    const long count = std::strtol(wanted, nullptr, 10);
    if (count >= 1 && count <= 1024) return static_cast<int>(count);
  }
  return allowed_processors();
}

std::atomic<int> thread_count{0};

// A loop whose chunks may throw, on threads that must not.
struct Guarded {
  void (*run_chunk)(const void*, index_t);
  const void* body;
  mutable std::atomic<bool> failed{false};
  mutable std::exception_ptr problem{};  // of the first thread that failed; read when all have left

  static void run(const void* self, index_t chunk) {
    const Guarded& loop = *static_cast<const Guarded*>(self);
    if (loop.failed.load(std::memory_order_relaxed)) return;
    try {
      loop.run_chunk(loop.body, chunk);
    } catch (...) {
      if (!loop.failed.exchange(true)) loop.problem = std::current_exception();
    }
  }
};

}  // namespace

int allowed_processors() {
#if defined(__linux__) && !defined(WHENCE_PLAIN_SYSTEM)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::max(CPU_COUNT(&allowed), 1);
#endif
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

int threads() {
  int count = thread_count.load(std::memory_order_relaxed);
  if (count == 0) thread_count.store(count = threads_at_first(), std::memory_order_relaxed);
  return count;
}

void set_threads(int count) {
  if (count < 1 || count > 1024) fail("set_threads", count, " given; 1 to 1024 required");
  thread_count.store(count, std::memory_order_relaxed);
}

struct Inside {
  Inside() { inside_parallel_for = true; }
  ~Inside() { inside_parallel_for = false; }
};

static void run_by_threads(index_t chunks, void (*run_chunk)(const void* body, index_t chunk), const void* body) {
  if (chunks <= 1 || inside_parallel_for || threads() == 1) {
    for (index_t chunk = 0; chunk < chunks; ++chunk) run_chunk(body, chunk);
    return;
  }
  const Guarded loop{run_chunk, body};
  Helpers& all = helpers();
  {
    const Inside inside;
    if (!all.share(chunks, Guarded::run, &loop))
      for (index_t chunk = 0; chunk < chunks; ++chunk) Guarded::run(&loop, chunk);
  }
  if (loop.problem) std::rethrow_exception(loop.problem);
}

static const bool registered = (detail::run_chunks = run_by_threads, true);

}  // namespace whence

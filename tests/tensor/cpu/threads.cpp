// Loops shared by threads: every chunk runs once, for any number of threads and any caller.
#include "tensor/parallel.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include "tensor/error.h"
#include "tensor/subnormals.h"
#include "tests/support/with.h"

using namespace whence;

namespace {

// True if each of `count` indices is met once.
bool each_once(index_t count, index_t grain) {
  std::vector<std::atomic<int>> met(static_cast<std::size_t>(count));
  std::atomic<bool> borders_right{true};
  parallel_for(count, grain, [&](index_t begin, index_t end) {
    if (begin % grain != 0 || end != std::min(begin + grain, count)) borders_right = false;
    for (index_t i = begin; i < end; ++i) ++met[static_cast<std::size_t>(i)];
  });
  bool once = borders_right;
  for (const auto& times : met) once = once && times == 1;
  return once;
}

// Returns the threads that work on a loop of `count` chunks, each of which waits until `awaited` have begun.
std::set<std::thread::id> threads_of_loop(int count, int awaited) {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  std::atomic<int> begun{0};
  parallel_for(count, 1, [&](index_t, index_t) {
    ++begun;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (begun < awaited && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    const std::scoped_lock lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  return seen;
}

}  // namespace

TEST_CASE("parallel_for: every index once, in chunks whose borders the size alone decides") {
  for (const int count : {1, 2, 3, 7}) {
    const test::WithThreads scope(count);
    for (const index_t extent : {0, 1, 2, 3, 64, 1000})
      for (const index_t grain : {1, 2, 7, 1000}) CHECK(each_once(extent, grain));
  }
}

TEST_CASE("parallel_for: many short loops, one after the other and after a rest") {
  const test::WithThreads scope(4);
  std::atomic<index_t> total{0};
  for (int loop = 0; loop < 20000; ++loop) {
    parallel_for(5, 1, [&](index_t begin, index_t) { total += begin + 1; });
    if (loop % 2000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the helpers sleep by then
  }
  CHECK(total == 20000 * 15);
}

TEST_CASE("parallel_for: the wanted number of threads work at the same time, fewer after set_threads") {
  const test::WithThreads scope(3);
  CHECK(threads_of_loop(3, 3).size() == 3);
  set_threads(2);
  CHECK(threads_of_loop(2, 2).size() == 2);
  CHECK(threads_of_loop(16, 2).size() == 2);  // of more helpers that were started before, one may join
  set_threads(1);
  CHECK(threads_of_loop(4, 1) == std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST_CASE("parallel_for: a loop inside a loop stays on its thread") {
  const test::WithThreads scope(3);
  std::atomic<bool> stayed{true};
  std::atomic<int> inner{0};
  parallel_for(6, 1, [&](index_t, index_t) {
    const std::thread::id here = std::this_thread::get_id();
    parallel_for(10, 1, [&](index_t, index_t) {
      ++inner;
      if (std::this_thread::get_id() != here) stayed = false;
    });
  });
  CHECK(stayed);
  CHECK(inner == 60);
  CHECK(threads_of_loop(3, 3).size() == 3);  // and the next loop has helpers again
}

TEST_CASE("parallel_for: two threads with loops of their own at the same time") {
  const test::WithThreads scope(3);
  std::atomic<bool> right{true};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 2; ++caller) {
    callers.emplace_back([&] {
      for (int loop = 0; loop < 2000; ++loop)
        if (!each_once(50, 3)) right = false;
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(right);
}

TEST_CASE("subnormal numbers are 0 while that is asked for, on all threads of a loop") {
  const test::WithThreads scope(3);
  const auto keeping = [] {
    std::atomic<int> begun{0}, results{0}, operands{0};
    parallel_for(3, 1, [&](index_t, index_t) {
      for (++begun; begun < 3;) std::this_thread::yield();  // each thread has one
      const volatile float least = std::numeric_limits<float>::min(),
                           subnormal = std::numeric_limits<float>::denorm_min();
      results += least / 2 != 0, operands += subnormal * 0x1p100f != 0;
    });
    return std::pair(results.load(), operands.load());
  };
  CHECK(keeping() == std::pair(3, 3));
  {
    const SubnormalsAsZero taken;
    CHECK(keeping() == std::pair(0, 0));
  }
  CHECK(keeping() == std::pair(3, 3));
}

TEST_CASE("parallel_for: a forked child has loops too") {
  const test::WithThreads scope(3);
  CHECK(each_once(100, 1));
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(each_once(100, 1) && threads_of_loop(3, 3).size() == 3 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("set_threads refuses what makes no sense") {
  CHECK_THROWS_WITH_AS(set_threads(0), doctest::Contains("0 given; 1 to 1024"), Error);
}

TEST_CASE("what a chunk throws reaches the caller from any thread, and the next loop runs") {
  for (const int count : {1, 2, 5}) {
    const test::WithThreads back(count);
    for (index_t bad = 0; bad < 40; bad += 13) {
      const auto loop = [bad] {
        parallel_for(40, 1, [bad](index_t begin, index_t) {
          if (begin >= bad) throw std::bad_alloc();
        });
      };
      CHECK_THROWS_AS(loop(), std::bad_alloc);
      CHECK(each_once(1000, 7));
    }
  }
}

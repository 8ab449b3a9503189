// Ranks as threads of one process, in place of MPI.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tensor/error.h"
#include "tensor/ranks/ranks.h"

namespace whence::test {

class RankThread final : public Communicator {
 public:
  struct Post {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> sent;  // from, to
    bool closed = false;                                                     // a rank's work has thrown
  };
  RankThread(int rank, int size, Post& post) : Communicator(rank, size), post_(post) {}

  std::string name() const override { return "threads"; }

  int exchanges = 0;
  std::size_t bytes = 0;  // that this rank sent

 private:
  void exchange_bytes(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs) override {
    ++exchanges, bytes += mine.size();
    std::unique_lock lock(post_.mutex);
    post_.sent[{rank(), peer}].emplace_back(mine.begin(), mine.end());
    post_.changed.notify_all();
    auto& letters = post_.sent[{peer, rank()}];
    post_.changed.wait(lock, [&] { return !letters.empty() || post_.closed; });
    if (letters.empty()) throw Error("ranks: another rank's work has thrown");
    if (letters.front().size() != theirs.size()) throw Error("ranks: the peer sent another number of bytes");
    std::ranges::copy(letters.front(), theirs.begin());
    letters.pop_front();
  }

  Post& post_;
};

// Throws what the first rank to fail threw.
inline void in_threads(int size, const std::function<void(RankThread&)>& work) {
  RankThread::Post post;
  std::exception_ptr problem;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        RankThread own(rank, size, post);
        work(own);
      } catch (...) {
        const std::lock_guard lock(post.mutex);
        if (!std::exchange(post.closed, true)) problem = std::current_exception();
        post.changed.notify_all();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (problem) std::rethrow_exception(problem);
}

}  // namespace whence::test

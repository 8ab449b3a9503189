// Ranks as threads of one process, over shared memory.
#pragma once

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "tensor/ranks/fork.h"

namespace whence::test {

inline void in_threads(int size, const std::function<void(Communicator&)>& work) {
  const ForkedRanks memory(size, 30);
  std::vector<std::exception_ptr> problems(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Communicator> own = memory.seat(rank);
      try {
        work(*own);
      } catch (...) {
        problems[static_cast<std::size_t>(rank)] = std::current_exception();
        own->give_up("its test failed");
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& problem : problems)
    if (problem) std::rethrow_exception(problem);
}

}  // namespace whence::test

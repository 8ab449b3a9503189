// Ranks as threads of one process, over shared memory.
#pragma once

#include <unistd.h>

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tensor/error.h"
#include "tensor/ranks/communicator.h"

namespace whence::test {

inline Launch launch_of(int rank, int size, const std::string& identity) {
  return {.rank = rank, .size = size, .local_rank = rank, .local_size = size, .by = "test", .identity = identity};
}

inline std::string new_identity() {
  static int starts = 0;
  return to_text("ranks-", getpid(), "-", ++starts);
}

inline void in_threads(int size, const std::function<void(Communicator&)>& work) {
  const std::string identity = new_identity();
  std::vector<std::exception_ptr> problems(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        work(*join_shared_memory(launch_of(rank, size, identity), 30));
      } catch (...) { problems[static_cast<std::size_t>(rank)] = std::current_exception(); }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& problem : problems)
    if (problem) std::rethrow_exception(problem);
}

}  // namespace whence::test

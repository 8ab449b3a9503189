// Ranks of one machine: children of this process over one anonymous mapping. There are no names and no files, so that
// nothing is left behind; and the parent, which the system tells who ended and how, tells the others.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensor/ranks/communicator.h"

namespace whence {

class ForkedRanks {
 public:
  static constexpr int most = 64;

  // Takes the memory for `count` ranks, a power of two and at most 64. `limit`: seconds that a rank waits for another
  // which neither dies nor answers. SystemError when there is no such room.
  ForkedRanks(int count, double limit);
  ~ForkedRanks();  // kills who still runs
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;

  // A rank's end, for a child or a thread of this process. May outlive this object.
  [[nodiscard]] std::unique_ptr<Communicator> seat(int rank) const;

  // Its seat in each child, nothing in the parent. Children are each in a group of their own, so that Ctrl-C comes from
  // this process alone, and die with it, whatever ends it. SystemError when the system forks no more.
  // REQUIRES: no thread that children need, nothing asked of CUDA yet; called by the thread that lives longest.
  [[nodiscard]] std::unique_ptr<Communicator> fork();

  // One that has ended since, as waitpid() says it. Where that was no end that the others know of, they have been woken
  // to throw LostRank, and `news` is who it was and how: "rank 1 of 4 died: it was ended by signal 9 ...".
  struct Ended {
    int rank, status;
    std::string news;
  };
  [[nodiscard]] std::optional<Ended> ended();

  [[nodiscard]] bool running() const;
  void signal(int number) const;  // to all that run

 private:
  struct Board;
  class SharedMemory;

  double limit_;
  std::shared_ptr<Board> board_;
  std::vector<pid_t> processes_;  // the parent's; 0: ended
};

}  // namespace whence

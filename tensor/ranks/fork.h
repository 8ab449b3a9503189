// Ranks of one machine: children of this process that share one anonymous mapping. Nothing has a name or a file, so
// nothing is left over. The system tells the parent which child ended and how, and the parent tells the others.
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

  // Allocates the memory for `count` ranks, a power of two and at most 64. `limit`: seconds that a rank waits for
  // another that neither dies nor answers. Throws SystemError if there is no memory.
  ForkedRanks(int count, double limit);
  ~ForkedRanks();  // kills the children that still run
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;

  // Returns a rank's end, for a child or a thread of this process. It may outlive this object.
  [[nodiscard]] std::unique_ptr<Communicator> seat(int rank) const;

  // Returns its seat in each child, and null in the parent. Each child is in its own process group, so that only this
  // process receives Ctrl-C, and dies with this process in any case. Throws SystemError if the system cannot fork.
  // REQUIRES: no thread that children need, no CUDA call yet; called by the thread that lives longest.
  [[nodiscard]] std::unique_ptr<Communicator> fork();

  // A child that has ended, as waitpid() reports it. If the others did not expect it, they are woken to throw LostRank,
  // and `news` says which rank and how: "rank 1 of 4 died: it was ended by signal 9 ...".
  struct Ended {
    int rank, status;
    std::string news;
  };
  [[nodiscard]] std::optional<Ended> ended();

  [[nodiscard]] bool running() const;
  void signal(int number) const;  // to all running children

 private:
  struct Board;
  class SharedMemory;

  double limit_;
  std::shared_ptr<Board> board_;
  std::vector<pid_t> processes_;  // the parent's; 0: ended
};

}  // namespace whence

// A training by several processes, its ranks: which launcher started them (Open MPI, MPICH), or
// starting them here (tensor/ranks/fork.h).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "examples/whence/cli/fields.h"
#include "examples/whence/machine/placement.h"
#include "tensor/ranks/communicator.h"

namespace whence {

using Environment = std::function<std::optional<std::string>(const char* name)>;
[[nodiscard]] std::optional<std::string> environment_variable(const char* name);

// Returns who started this process, and its rank of several. In this order: OMPI_COMM_WORLD_SIZE (Open MPI); PMI_SIZE (MPICH,
// and srun --mpi=pmi2). Only `size` and `by`: MPI says the rest
// (join_mpi). One rank is alone, whoever started it. InputError where torchrun did (RANK, WORLD_SIZE), or the ranks are
// no power of two.
[[nodiscard]] Launch find_launch(const Environment& environment = environment_variable);

struct RankOptions {
  int processes = 1;
  std::string communicator = "auto";
  double limit = 600;     // seconds
  bool announced = true;  // in a line on standard output: how many there are, over what
};

// Under the title "Ranks".
void declare(Fields& line, RankOptions& options);

// What a command does as one of its ranks: all of it where there is but one. Before `work`, --threads is shared by the
// ranks of this machine unless it was typed, and ranks other than 0 stop printing to standard output. The exit code of
// `work`; where it throws, the other ranks are told why, and one alone says it on standard error.
// With --processes N, and no launcher that made this process a rank: forks N children, which return from here as ranks;
// this process waits for them. A signal to stop is handed on to all. When one fails the others end too; the exit code is
// 130 when they were interrupted, else that of a rank whose own fault it was, before the 1 of those that missed it.
// REQUIRES: no GPU was asked for anything before.
[[nodiscard]] int run_as_ranks(const Fields& line, const RankOptions& options, MachineOptions& machine,
    const std::function<int(Communicator* ranks)>& work);

}  // namespace whence

// A training by several processes, its ranks: either a launcher started them (Open MPI, MPICH), or this process does
// (tensor/ranks/fork.h).
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

// Returns who started this process, and its rank of several. In this order: OMPI_COMM_WORLD_SIZE (Open MPI); PMI_SIZE
// (MPICH, and srun --mpi=pmi2). Only `size` and `by`: MPI gives the rest (join_mpi). One rank is alone, whoever started
// it. InputError if torchrun did (RANK, WORLD_SIZE), or the number of ranks is no power of two.
[[nodiscard]] Launch find_launch(const Environment& environment = environment_variable);

struct RankOptions {
  int processes = 1;
  std::string communicator = "auto";
  double limit = 600;     // seconds
  bool announced = true;  // prints their number and the communicator on standard output
};

// Declares the options under the title "Ranks".
void declare(Fields& line, RankOptions& options);

// Runs a command as one of its ranks: all of it if there is only one. Before `work`, --threads is divided among the
// ranks of this machine unless it was typed, and ranks other than 0 stop printing to standard output. Returns the exit
// code of `work`. If it throws, the other ranks get the reason, and one alone prints it on standard error.
// With --processes N, and without a launcher: forks N children, which return from here as ranks; this process waits for
// them and hands a signal to stop on to all. When one fails the others end too. The exit code is 130 after an
// interruption; else that of a rank that caused the failure, before the 1 of ranks that missed it.
// REQUIRES: no call to CUDA before.
[[nodiscard]] int run_as_ranks(const Fields& line, const RankOptions& options, MachineOptions& machine,
    const std::function<int(Communicator* ranks)>& work);

}  // namespace whence

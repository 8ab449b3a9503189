// A training by several processes, its ranks, which mpirun or srun started.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "examples/whence/cli/fields.h"
#include "examples/whence/machine/placement.h"
#include "tensor/ranks/ranks.h"

namespace whence {

using Environment = std::function<std::optional<std::string>(const char* name)>;
[[nodiscard]] std::optional<std::string> environment_variable(const char* name);

// Returns the launcher of this process and the number of ranks; MPI gives the rest (join_mpi). In this order:
// OMPI_COMM_WORLD_SIZE (Open MPI); PMI_SIZE (MPICH, and srun --mpi=pmi2); PMIX_RANK with SLURM_STEP_NUM_TASKS (srun
// --mpi=pmix). InputError if torchrun did (RANK, WORLD_SIZE), or the number of ranks is no power of two.
[[nodiscard]] Launch find_launch(const Environment& environment = environment_variable);

// Runs a command as one of its ranks: all of it if there is only one. A rank waits WHENCE_RANK_LIMIT seconds (600) for
// one that does not answer. Before `work`, --threads is divided among the ranks of this machine unless it was typed,
// and ranks other than 0 stop printing to standard output. Returns the exit code of `work`. If it throws, the other
// ranks end when this process does. REQUIRES: no call to CUDA before.
[[nodiscard]] int run_as_ranks(
    const Fields& line, MachineOptions& machine, const std::function<int(Communicator* ranks)>& work);

}  // namespace whence

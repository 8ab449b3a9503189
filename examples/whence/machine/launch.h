// Who started this process, and as which of several: read from what torchrun, Open MPI, MPICH or SLURM put into the
// environment. Ranks of --processes say it themselves (tensor/ranks/fork.h).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tensor/ranks/communicator.h"

namespace whence {

using Environment = std::function<std::optional<std::string>(const char* name)>;
[[nodiscard]] std::optional<std::string> environment_variable(const char* name);

// In this order: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR (torchrun); OMPI_COMM_WORLD_SIZE (Open MPI); PMI_SIZE (MPICH,
// and srun --mpi=pmi2); SLURM_STEP_NUM_TASKS in a step that srun started. Of the last three only `size` and `by`: MPI
// says the rest (join_mpi). One rank is alone, whoever started it. InputError where the variables contradict themselves,
// or the ranks are no power of two.
[[nodiscard]] Launch find_launch(const Environment& environment = environment_variable);

// What this process starts is alone: takes the launchers' variables out of the environment.
void leave_launcher();

// Leaves this rank one of the GPUs that CUDA_VISIBLE_DEVICES names, or the machine has, as its cuda:0; ranks take them
// in turn. Before anything asks CUDA.
void take_gpu(Launch& launch);

}  // namespace whence

// Who started this process, and as which of several: read from what torchrun, Open MPI, MPICH, SLURM or `train
// --processes` put into the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace whence {

struct Launch {
  int rank = 0, size = 1;              // of all
  int local_rank = 0, local_size = 1;  // of those on this machine
  std::string by = {};                 // "whence", "torchrun", "Open MPI", "PMI", "SLURM"; empty: alone
  // The same for all ranks of one start on one machine, and for no others: the name under which they find each other.
  std::string identity = {};
  bool own_gpu = true;       // false: of this machine's ranks some share one
  std::string address = {};  // HOST:PORT of rank 0 where the launcher says it; empty: it does not
};

using Environment = std::function<std::optional<std::string>(const char* name)>;
[[nodiscard]] std::optional<std::string> environment_variable(const char* name);

// In this order: WHENCE_RANK and WHENCE_RANKS; RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR (torchrun);
// OMPI_COMM_WORLD_RANK (Open MPI); PMI_RANK (MPICH, and srun --mpi=pmi2); SLURM_PROCID in a step that srun started.
// One rank is alone, whoever started it: WHENCE_RANK=0 WHENCE_RANKS=1 makes a child of a rank so. InputError where they
// contradict themselves: a rank that is not below the size, one without the other, not a number.
[[nodiscard]] Launch find_launch(const Environment& environment = environment_variable);

// When a process of this machine began, in the kernel's ticks: with its number it names it for as long as the machine is
// up. Empty: there is none, or it has ended and nobody has asked how.
[[nodiscard]] std::string beginning_of_process(int process);

// Leaves this rank one of the GPUs that CUDA_VISIBLE_DEVICES names, or the machine has, as its cuda:0; ranks take them
// in turn. Before anything asks CUDA.
void take_gpu(Launch& launch);

}  // namespace whence

// Ranks that mpirun or srun started, over MPI; in a build with -DWHENCE_MPI=ON.
#include "tensor/ranks/communicator.h"

namespace whence {

#ifndef WHENCE_MPI

bool built_with_mpi() { return false; }

std::unique_ptr<Communicator> join_mpi(const Launch&, double) {
  throw InputError(
      "ranks: MPI asked for, and this build is without it; configure with -DWHENCE_MPI=ON (needs libopenmpi-dev "
      "or libmpich-dev), or let ranks of one machine share memory");
}

#endif

}  // namespace whence

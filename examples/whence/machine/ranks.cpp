#include "examples/whence/machine/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <vector>

#include "examples/whence/cli/numbers.h"

namespace whence {
namespace {

// Gives this rank one of the GPUs that CUDA_VISIBLE_DEVICES names, or the machine has, as its cuda:0; ranks cycle
// through them. Called before anything uses CUDA.
void take_gpu(const Launch& launch) {
  std::vector<std::string> gpus;
  if (const auto visible = environment_variable("CUDA_VISIBLE_DEVICES")) {
    std::istringstream names(*visible);
    for (std::string name; std::getline(names, name, ',');) gpus.push_back(name);
  } else {
    while (::access(to_text("/dev/nvidia", gpus.size()).c_str(), F_OK) == 0)
      gpus.push_back(std::to_string(gpus.size()));
  }
  if (gpus.empty()) return;
  ::setenv("CUDA_VISIBLE_DEVICES", gpus[static_cast<std::size_t>(launch.local_rank) % gpus.size()].c_str(), 1);
}

int number_of(const Environment& environment, const char* name, const char* otherwise = "1") {
  const std::string text = environment(name).value_or(otherwise);
  const std::optional<int> value = parse_number<int>(text);
  if (!value || *value < 0)
    throw InputError(
        name, "='", text.substr(0, 40), "' given in the environment; a whole number of 0 or more required");
  return *value;
}

}  // namespace

std::optional<std::string> environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

Launch find_launch(const Environment& environment) {
  struct Launcher {
    const char *by, *sign, *size;
  };
  for (const auto& [by, sign, size] : {Launcher{"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
           {"PMI", "PMI_SIZE", "PMI_SIZE"}, {"PMIx", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"}}) {
    if (!environment(sign)) continue;
    const Launch launch{.size = number_of(environment, size), .by = by};
    if (!std::has_single_bit(static_cast<unsigned>(launch.size)))
      throw InputError("ranks: ", launch.size,
          " given; 1, 2, 4, 8 or another power of two required: sums over ranks are halves of halves, so that their "
          "bits are those of one rank");
    return launch;
  }
  if (const int size = number_of(environment, "WORLD_SIZE"); size > 1 && environment("RANK"))
    throw InputError(
        "ranks: torchrun started ", size, " of them; mpirun or srun required, and a build with -DWHENCE_MPI=ON");
  return {};
}

int run_as_ranks(const Fields& line, MachineOptions& machine, const std::function<int(Communicator*)>& work) {
  Launch launch = find_launch();
  if (launch.size == 1) return work(nullptr);
  const double limit = number_of(environment_variable, "WHENCE_RANK_LIMIT", "600");
  // Destroyed by an exception, they end the other ranks.
  const std::unique_ptr<Communicator> ranks = join_mpi(launch, limit);
  if (!line.given("threads")) machine.threads = std::max(1, machine.threads / launch.local_size);
  if (launch.rank > 0 && !std::freopen("/dev/null", "w", stdout)) throw SystemError("ranks: /dev/null: cannot write");
  if (machine.device != "cpu") take_gpu(launch);
  std::cout << "ranks: " << launch.size << ", started by " << launch.by << ", over " << ranks->name() << std::endl;
  return work(ranks.get());
}

}  // namespace whence

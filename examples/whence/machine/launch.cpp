#include "examples/whence/machine/launch.h"

#include <unistd.h>

#include <bit>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "tensor/error.h"

namespace whence {
namespace {

struct Launcher {
  const char *by, *size;
};
constexpr Launcher over_mpi[] = {
    {"Open MPI", "OMPI_COMM_WORLD_SIZE"}, {"PMI", "PMI_SIZE"}, {"SLURM", "SLURM_STEP_NUM_TASKS"}};

std::optional<int> number(const Environment& environment, const char* name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  int value = 0;
  const char* const end = text->data() + text->size();
  const auto [last, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || last != end || value < 0)
    throw InputError(
        name, "='", text->substr(0, 40), "' given in the environment; a whole number of 0 or more required");
  return value;
}

std::optional<Launch> by_torchrun(const Environment& environment) {
  const auto rank = number(environment, "RANK"), size = number(environment, "WORLD_SIZE");
  if (!rank && !size) return std::nullopt;
  if (!rank || !size)
    throw InputError(rank ? "RANK" : "WORLD_SIZE", " given in the environment without ", rank ? "WORLD_SIZE" : "RANK",
        "; both required, as torchrun sets them");
  Launch launch{.rank = *rank,
      .size = *size,
      .local_rank = number(environment, "LOCAL_RANK").value_or(*rank),
      .local_size = number(environment, "LOCAL_WORLD_SIZE").value_or(*size),
      .by = "torchrun"};
  if (launch.rank >= launch.size || launch.local_rank >= launch.local_size || launch.local_size > launch.size)
    throw InputError("RANK=", launch.rank, " and WORLD_SIZE=", launch.size, " given in the environment, as rank ",
        launch.local_rank, " of ", launch.local_size, " on this machine; a rank below their number required");
  if (const auto host = environment("MASTER_ADDR"))
    launch.address = to_text(*host, ":", environment("MASTER_PORT").value_or("29500"));
  return launch;
}

std::optional<Launch> by_mpi(const Environment& environment) {
  // The shells of sbatch and salloc are steps without srun.
  const std::string step = environment("SLURM_STEP_ID").value_or("4294967291");
  const bool in_a_shell = step == "4294967291" || step == "4294967290";
  for (const auto& [by, name] : over_mpi)
    if (const auto size = number(environment, name); size && !(by == std::string("SLURM") && in_a_shell))
      return Launch{.size = *size, .by = by};
  return std::nullopt;
}

}  // namespace

std::optional<std::string> environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

Launch find_launch(const Environment& environment) {
  std::optional<Launch> launch = by_torchrun(environment);
  if (!launch) launch = by_mpi(environment);
  if (!launch || launch->size == 1) return {};
  if (!std::has_single_bit(static_cast<unsigned>(launch->size)))
    throw InputError("ranks: ", launch->size,
        " given; 1, 2, 4, 8 or another power of two required: sums over ranks are halves of halves, so that their bits "
        "are those of one rank");
  return *launch;
}

void leave_launcher() {
  for (const char* name : {"RANK", "WORLD_SIZE"}) ::unsetenv(name);
  for (const auto& [by, size] : over_mpi) ::unsetenv(size);
}

void take_gpu(Launch& launch) {
  std::vector<std::string> gpus;
  if (const auto visible = environment_variable("CUDA_VISIBLE_DEVICES")) {
    std::istringstream names(*visible);
    for (std::string name; std::getline(names, name, ',');) gpus.push_back(name);
  } else {
    while (::access(to_text("/dev/nvidia", gpus.size()).c_str(), F_OK) == 0)
      gpus.push_back(std::to_string(gpus.size()));
  }
  if (gpus.empty()) return;
  // srun --gpus-per-task has given each its own already.
  launch.own_gpu = launch.local_size <= std::ssize(gpus) || environment_variable("SLURM_GPUS_PER_TASK");
  ::setenv("CUDA_VISIBLE_DEVICES", gpus[static_cast<std::size_t>(launch.local_rank) % gpus.size()].c_str(), 1);
}

}  // namespace whence

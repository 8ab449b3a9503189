#include "tensor/ranks/launch.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tensor/error.h"

namespace whence {
namespace {

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

// The names of a launcher's variables.
struct Names {
  const char *by, *rank, *size, *local_rank, *local_size;
};
constexpr std::array launchers{
    Names{"whence", "WHENCE_RANK", "WHENCE_RANKS", "WHENCE_RANK", "WHENCE_RANKS"},
    Names{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    Names{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE"},
    Names{"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    Names{"SLURM", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
};

// When the process began, in the kernel's ticks: with its number it names it for as long as the machine is up.
std::string beginning_of(pid_t process) {
  std::ifstream file(to_text("/proc/", process, "/stat"));
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string field;
  for (int k = 0; k < 20; ++k) fields >> field;
  return field;
}

// Ranks of one launcher on one machine are children of one process, unless a shell stands between.
std::string identity_of(const Launch& launch, const Environment& environment) {
  for (const char* name : {"WHENCE_RENDEZVOUS", "PMIX_NAMESPACE", "OMPI_MCA_orte_ess_jobid"})
    if (const auto value = environment(name)) return to_text(launch.by, "-", *value);
  if (launch.by == "SLURM" || environment("SLURM_STEP_ID"))
    return to_text("SLURM-", environment("SLURM_JOB_ID").value_or(""), "-", environment("SLURM_STEP_ID").value_or(""),
        "-", environment("SLURM_RESTART_COUNT").value_or("0"));
  return to_text(launch.by, "-", getppid(), "-", beginning_of(getppid()));
}

void require_consistent(const Launch& launch, const Names& names) {
  if (launch.size < 1 || launch.rank >= launch.size)
    throw InputError(names.rank, "=", launch.rank, " and ", names.size, "=", launch.size,
        " given in the environment; a rank below their number required");
  if (launch.local_size < 1 || launch.local_rank >= launch.local_size || launch.local_size > launch.size)
    throw InputError(names.local_rank, "=", launch.local_rank, " and ", names.local_size, "=", launch.local_size,
        " given in the environment with ", launch.size, " ranks in all; a rank below their number here required");
}

}  // namespace

std::optional<std::string> environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

Launch find_launch(const Environment& environment) {
  for (const Names& names : launchers) {
    const auto rank = number(environment, names.rank), size = number(environment, names.size);
    const bool slurm = names.by == std::string("SLURM");
    // A batch script is a step without srun, where the variables of its one process say what srun would start.
    if (slurm && (!rank || size.value_or(1) < 2 || !environment("SLURM_STEP_ID") ||
                     environment("SLURM_STEP_ID") == "4294967291" || environment("SLURM_STEP_ID") == "batch"))
      continue;
    if (!rank && !size) continue;
    if (!rank || !size)
      throw InputError(rank ? names.rank : names.size, " given in the environment without ",
          rank ? names.size : names.rank, "; both required, as ", names.by, " sets them");
    Launch launch{.rank = *rank, .size = *size, .by = names.by};
    launch.local_rank = number(environment, names.local_rank).value_or(launch.rank);
    const auto local_size = number(environment, names.local_size);
    const auto nodes = slurm ? number(environment, "SLURM_STEP_NUM_NODES") : std::nullopt;
    launch.local_size = nodes == 1 ? launch.size : local_size.value_or(launch.size);
    require_consistent(launch, names);
    if (const auto host = environment("MASTER_ADDR"))
      launch.address = to_text(*host, ":", environment("MASTER_PORT").value_or("29500"));
    launch.identity = identity_of(launch, environment);
    return launch;
  }
  return {};
}

}  // namespace whence

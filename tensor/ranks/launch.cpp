#include "tensor/ranks/launch.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

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

// The names of a launcher's variables. SLURM says the local ones of ranks that it started in another way.
struct Names {
  const char *by, *rank, *size, *local_rank, *local_size;
};
constexpr std::array launchers{
    Names{"whence", "WHENCE_RANK", "WHENCE_RANKS", "WHENCE_RANK", "WHENCE_RANKS"},
    Names{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    Names{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE"},
    Names{"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    Names{"SLURM", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr, nullptr},
};

// Of "2(x3),1", how many tasks each of SLURM's nodes has: that of one node.
std::optional<int> tasks_on_node(const std::string& counts, int node) {
  std::istringstream text(counts);
  for (int tasks = 0, times = 1; text >> tasks; times = 1) {
    if (text.peek() == '(') text.ignore(2) >> times, text.ignore(1);
    if (node < times) return tasks;
    node -= times;
    text.ignore(1);  // the comma
  }
  return std::nullopt;
}

bool by_srun(const Launch& launch, const Environment& environment) {
  return launch.by == "SLURM" ||
         (launch.by == "PMI" && !environment("MPI_LOCALRANKID") && environment("SLURM_STEP_ID"));
}

void find_neighbours(Launch& launch, const Names& names, const Environment& environment) {
  std::optional<int> rank, size;
  if (by_srun(launch, environment)) {
    rank = number(environment, "SLURM_LOCALID");
    size = tasks_on_node(
        environment("SLURM_STEP_TASKS_PER_NODE").value_or(""), number(environment, "SLURM_NODEID").value_or(0));
  } else {
    rank = number(environment, names.local_rank), size = number(environment, names.local_size);
  }
  launch.local_rank = rank.value_or(launch.rank);
  launch.local_size = size.value_or(launch.size);
  if (launch.local_size < 1 || launch.local_rank >= launch.local_size || launch.local_size > launch.size)
    throw InputError(names.rank, "=", launch.rank, " of ", launch.size, " given in the environment as rank ",
        launch.local_rank, " of ", launch.local_size, " on this machine; a rank below their number here required");
}

// torchrun says it; ranks of the others are children of one process of their machine, unless a shell stands between.
std::string identity_of(const Launch& launch, const Environment& environment) {
  for (const char* name : {"WHENCE_RENDEZVOUS", "PMIX_NAMESPACE", "OMPI_MCA_orte_ess_jobid"})
    if (const auto value = environment(name)) return to_text(launch.by, "-", *value);
  if (launch.by == "torchrun" && !launch.address.empty())
    return to_text("torchrun-", launch.address, "-", environment("TORCHELASTIC_RUN_ID").value_or(""), "-",
        environment("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  if (by_srun(launch, environment))
    return to_text("SLURM-", environment("SLURM_JOB_ID").value_or(""), "-", environment("SLURM_STEP_ID").value_or(""),
        "-", environment("SLURM_RESTART_COUNT").value_or("0"));
  return to_text(launch.by, "-", getppid(), "-", beginning_of_process(getppid()));
}

}  // namespace

std::string beginning_of_process(int process) {
  std::ifstream file(to_text("/proc/", process, "/stat"));
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return {};
  for (int k = 0; k < 19; ++k) fields >> field;
  return field;
}

std::optional<std::string> environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

Launch find_launch(const Environment& environment) {
  for (const Names& names : launchers) {
    const auto rank = number(environment, names.rank), size = number(environment, names.size);
    const bool slurm = names.by == std::string("SLURM");
    // The shells of sbatch and salloc are steps without srun.
    const std::string step = slurm ? environment("SLURM_STEP_ID").value_or("") : "";
    if (slurm && (!rank || !size || step.empty() || step == "4294967291" || step == "4294967290")) continue;
    if (!rank && !size) continue;
    if (!rank || !size)
      throw InputError(rank ? names.rank : names.size, " given in the environment without ",
          rank ? names.size : names.rank, "; both required, as ", names.by, " sets them");
    if (*size < 1 || *rank >= *size)
      throw InputError(names.rank, "=", *rank, " and ", names.size, "=", *size,
          " given in the environment; a rank below their number required");
    if (*size == 1) return {};
    Launch launch{.rank = *rank, .size = *size, .by = names.by};
    find_neighbours(launch, names, environment);
    if (const auto host = environment("MASTER_ADDR"))
      launch.address = to_text(*host, ":", environment("MASTER_PORT").value_or("29500"));
    launch.identity = identity_of(launch, environment);
    return launch;
  }
  return {};
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
  if (gpus.empty() || launch.size == 1) return;
  // srun --gpus-per-task has given each its own already.
  launch.own_gpu = launch.local_size <= std::ssize(gpus) || environment_variable("SLURM_GPUS_PER_TASK");
  ::setenv("CUDA_VISIBLE_DEVICES", gpus[static_cast<std::size_t>(launch.local_rank) % gpus.size()].c_str(), 1);
}

}  // namespace whence

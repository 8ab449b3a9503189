#include "examples/whence/machine/ranks.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/run_main.h"
#include "tensor/ranks/collectives.h"
#include "tensor/ranks/fork.h"

namespace whence {
namespace {

struct Launcher {
  const char *by, *size;
};
constexpr Launcher over_mpi[] = {{"Open MPI", "OMPI_COMM_WORLD_SIZE"}, {"PMI", "PMI_SIZE"}};

std::optional<int> number(const Environment& environment, const char* name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  const std::optional<int> value = parse_number<int>(*text);
  if (!value || *value < 0)
    throw InputError(
        name, "='", text->substr(0, 40), "' given in the environment; a whole number of 0 or more required");
  return value;
}

// torchrun's ranks have no communicator of whence.
void refuse_torchrun(const Environment& environment) {
  const int size = number(environment, "WORLD_SIZE").value_or(1);
  if (size > 1 && environment("RANK"))
    throw InputError("ranks: torchrun started ", size,
        " of them; mpirun or srun required, and a build with -DWHENCE_MPI=ON, over which NCCL's ranks find each other; "
        "on "
        "one machine start one process with --processes ",
        size);
}

std::optional<Launch> by_mpi(const Environment& environment) {
  for (const auto& [by, name] : over_mpi)
    if (const auto size = number(environment, name)) return Launch{.size = *size, .by = by};
  return std::nullopt;
}

// Gives this rank one of the GPUs that CUDA_VISIBLE_DEVICES names, or the machine has, as its cuda:0; ranks cycle
// through them. Called before anything uses CUDA.
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
  // srun --gpus-per-task has already given each rank its own.
  launch.own_gpu = launch.local_size <= std::ssize(gpus) || environment_variable("SLURM_GPUS_PER_TASK");
  ::setenv("CUDA_VISIBLE_DEVICES", gpus[static_cast<std::size_t>(launch.local_rank) % gpus.size()].c_str(), 1);
}

// Waits for all ranks and returns the exit code that the header defines.
int code_of_all(ForkedRanks& ranks) {
  // A save may take a while; a rank that waits for a dead one notices much earlier.
  constexpr double seconds_to_end = 60;
  int all = 0;
  std::optional<double> kill_at;
  for (int round = 0; ranks.running(); ++round) {
    // The signal is sent repeatedly: the first may reach a rank that has not installed its handler yet.
    if (interrupt_requested() && round % 20 == 0) ranks.signal(SIGUSR1);
    while (const auto ended = ranks.ended()) {
      // A rank that ended by itself has printed the reason.
      if (WIFSIGNALED(ended->status) && !ended->news.empty()) std::cerr << "ranks: " + ended->news + "\n" << std::flush;
      const int failed = static_cast<int>(ExitCode::failed),
                code = WIFSIGNALED(ended->status) ? failed : WEXITSTATUS(ended->status);
      if (code != 0 && (all == 0 || all == failed)) all = code;
      if (code != 0 && code != static_cast<int>(ExitCode::interrupted) && !kill_at)
        kill_at = steady_seconds() + seconds_to_end;
    }
    if (kill_at && steady_seconds() > *kill_at) {
      std::cerr << "ranks: some did not end within " << seconds_to_end << " seconds of the first failure; killed\n";
      ranks.signal(SIGKILL);
      kill_at = 1e300;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return all;
}

// Thrown on a rank that would only repeat another's message.
void silence(int stream) {
  std::cout.flush();
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  dup2(nowhere, stream);
  close(nowhere);
}

// `cpus`: the communicator between CPUs.
int run_as_rank(Launch& launch, const RankOptions& options, const std::string& wanted, Communicator& cpus,
    const std::function<int(Communicator*)>& work) {
  std::unique_ptr<Communicator> gpus;
  try {
    if (wanted != "cpu") take_gpu(launch);  // before anything uses a GPU
    const Device device = choose_device(wanted).device;
    if (options.communicator == "nccl" ||
        (options.communicator == "auto" && !device.is_cpu() && launch.own_gpu && nccl_can_be_loaded()))
      gpus = join_nccl(launch, cpus, device, options.limit);
    if (options.announced)
      std::cout << "ranks: " << launch.size << ", started by " << launch.by << ", over " << (gpus ? *gpus : cpus).name()
                << (device.is_cpu() || launch.own_gpu ? "" : ", because some share a GPU, which NCCL does not allow")
                << std::endl;
    return work(gpus ? gpus.get() : &cpus);
  } catch (const std::exception& error) {
    if (!(gpus ? *gpus : cpus).give_up(error.what())) silence(STDERR_FILENO);
    if (!dynamic_cast<const LostRank*>(&error)) throw;
    if (interrupt_requested())
      throw Interrupted(to_text("stopped at the last checkpoint, as another rank had ended first: ", error.what()));
    throw LostRank(to_text("rank ", launch.rank, ": ", error.what()));
  }
}

}  // namespace

std::optional<std::string> environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

Launch find_launch(const Environment& environment) {
  const std::optional<Launch> launch = by_mpi(environment);
  if (!launch) refuse_torchrun(environment);
  if (!launch || launch->size == 1) return {};
  if (!std::has_single_bit(static_cast<unsigned>(launch->size)))
    throw InputError("ranks: ", launch->size,
        " given; 1, 2, 4, 8 or another power of two required: sums over ranks are halves of halves, so that their bits "
        "are those of one rank");
  return *launch;
}

void declare(Fields& line, RankOptions& options) {
  line.heading("Ranks")
      .integer("processes", &options.processes, Range<int>{1, 64},
          {"ranks to start on this machine; they share a step's --accumulate parts, and the weights have the same bits "
           "for any number. Without --accumulate they share the --batch, a part each. mpirun and srun start ranks "
           "too",
              "", "1, 2, 4, 8, 16, 32 or 64"})
      .choice("communicator", &options.communicator, {"auto", "shared", "mpi", "nccl"},
          {"transport between ranks; auto: NCCL between GPUs, MPI if it started the ranks, else shared memory"})
      .number("rank-limit", &options.limit, Range<double>{1, 1e6},
          {"longest wait of a rank for one that neither dies nor answers", "seconds"});
}

int run_as_ranks(const Fields& line, const RankOptions& options, MachineOptions& machine,
    const std::function<int(Communicator*)>& work) {
  Launch launch = find_launch();
  if (launch.by.empty() && options.processes == 1) {
    for (const char* name : {"communicator", "rank-limit"})
      line.refuse_unless(name, by_mpi(environment_variable).has_value(), "--processes, or ranks of mpirun or srun");
    return work(nullptr);
  }
  if (!launch.by.empty() && options.processes > 1)
    line.refuse("processes", to_text("1 under ", launch.by, ", which started ", launch.size, " ranks"), "leave it out");
  if (!std::has_single_bit(static_cast<unsigned>(options.processes)))
    line.refuse("processes", "a power of two", "sums over ranks are halves of halves: 2, 4 or 8");
  const std::string body = launch.by.empty() ? "shared" : "mpi";
  if (options.communicator != "auto" && options.communicator != "nccl" && options.communicator != body)
    line.refuse(
        "communicator", body + " or nccl", "ranks of --processes share memory, those of mpirun and srun have MPI");
  std::optional<ForkedRanks> forked;
  std::unique_ptr<Communicator> cpus;
  if (body == "shared") {
    install_interrupt_handler();
    std::cout.flush();
    forked.emplace(options.processes, options.limit);
    cpus = forked->fork();
    if (!cpus) return code_of_all(*forked);
    launch = {.rank = cpus->rank(),
        .size = cpus->size(),
        .local_rank = cpus->rank(),
        .local_size = cpus->size(),
        .by = "whence"};
  } else {
    cpus = join_mpi(launch, options.limit);
  }
  if (!line.given("threads")) machine.threads = std::max(1, machine.threads / launch.local_size);
  if (launch.rank > 0) silence(STDOUT_FILENO);
  return run_as_rank(launch, options, machine.device, *cpus, work);
}

}  // namespace whence

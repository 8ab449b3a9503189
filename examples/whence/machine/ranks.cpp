#include "examples/whence/machine/ranks.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <optional>
#include <sstream>
#include <thread>

#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/run_main.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/machine/device_choice.h"
#include "examples/whence/machine/launch.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/sha256.h"
#include "tensor/ranks/collectives.h"
#include "tensor/ranks/fork.h"

namespace whence {
namespace {

// Until all have ended: their exit code, as the header has it.
int code_of_all(ForkedRanks& ranks) {
  // A save that is under way may take a while; who waits for a dead rank has noticed long before.
  constexpr double seconds_to_end = 60;
  int all = 0;
  std::optional<double> kill_at;
  for (int turn = 0; ranks.running(); ++turn) {
    // It asks however often it comes. The first may come to a rank that has not installed its handler yet.
    if (interrupt_requested() && turn % 20 == 0) ranks.signal(SIGUSR1);
    while (const auto ended = ranks.ended()) {
      // One that ended by itself has said why.
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

// Of a rank that would only repeat what another says.
void silence(int stream) {
  std::cout.flush();
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  dup2(nowhere, stream);
  close(nowhere);
}

// `cpus`: what carries numbers of CPUs; null under torchrun.
int run_as_rank(Launch& launch, const RankOptions& options, const std::string& wanted, Communicator* cpus,
    const std::function<int(Communicator*)>& work) {
  std::unique_ptr<Communicator> gpus;
  try {
    if (wanted != "cpu") take_gpu(launch);  // before anything looks at GPUs
    const Device device = choose_device(wanted).device;
    if (!cpus || options.communicator == "nccl" ||
        (options.communicator == "auto" && !device.is_cpu() && launch.own_gpu && nccl_can_be_loaded()))
      gpus = join_nccl(
          launch, {.limit = options.limit, .rendezvous = options.rendezvous, .device = device, .control = cpus});
    if (options.announced)
      std::cout << "ranks: " << launch.size << ", started by " << launch.by << ", over "
                << (gpus ? *gpus : *cpus).name()
                << (device.is_cpu() || launch.own_gpu ? "" : ", as some share a GPU, between which NCCL does not go")
                << std::endl;
    return work(gpus ? gpus.get() : cpus);
  } catch (const std::exception& error) {
    Communicator* const told = gpus ? gpus.get() : cpus;
    if (told && !told->give_up(error.what())) silence(STDERR_FILENO);
    if (!dynamic_cast<const LostRank*>(&error)) throw;
    if (interrupt_requested())
      throw Interrupted(to_text("stopped at the last checkpoint, as another rank had ended first: ", error.what()));
    throw LostRank(to_text("rank ", launch.rank, ": ", error.what()));
  }
}

}  // namespace

void declare(CommandLine& line, RankOptions& options) {
  line.heading("Ranks")
      .integer("processes", &options.processes, Range<int>{1, 64},
          {"ranks to start on this machine; they share a step's --accumulate parts, and the weights have the same bits "
           "for any number. mpirun, srun and torchrun start ranks too",
              "", "1, 2, 4, 8, 16, 32 or 64"})
      .choice("communicator", &options.communicator, {"auto", "shared", "mpi", "nccl"},
          {"what carries numbers between ranks; auto: NCCL between GPUs, MPI where it started the ranks, else shared "
           "memory"})
      .number("rank-limit", &options.limit, Range<double>{1, 1e6},
          {"that a rank waits for one that neither dies nor answers", "seconds"})
      .text("rendezvous", &options.rendezvous,
          {"of NCCL over machines without MPI: HOST:PORT of rank 0, or a file that all ranks see"});
}

int run_as_ranks(const CommandLine& line, const RankOptions& options, MachineOptions& machine,
    const std::function<int(Communicator*)>& work) {
  Launch launch = find_launch();
  if (launch.by.empty() && options.processes == 1) return work(nullptr);
  if (!launch.by.empty() && options.processes > 1)
    line.refuse("processes", to_text("1 under ", launch.by, ", which started ", launch.size, " ranks"), "leave it out");
  if (!std::has_single_bit(static_cast<unsigned>(options.processes)))
    line.refuse("processes", "a power of two", "sums over ranks are halves of halves: 2, 4 or 8");
  const std::string body = launch.by.empty() ? "shared" : launch.by == "torchrun" ? "nccl" : "mpi";
  if (options.communicator != "auto" && options.communicator != "nccl" && options.communicator != body)
    line.refuse("communicator", body + " or nccl",
        "ranks of --processes share memory, those of mpirun and srun have MPI, those of torchrun NCCL alone");
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
  } else if (body == "mpi") {
    cpus = join_mpi(launch, options.limit);
  }
  if (!line.given("threads")) machine.threads = std::max(1, machine.threads / launch.local_size);
  if (launch.rank > 0) silence(STDOUT_FILENO);
  return run_as_rank(launch, options, machine.device, cpus.get(), work);
}

bool fit_accumulate(const CommandLine& line, TrainingOptions& training) {
  if (!training.ranks || training.accumulate % training.ranks->size() == 0) return false;
  const int ranks = training.ranks->size();
  if (line.given("accumulate"))
    line.refuse("accumulate", to_text("a multiple of the ", ranks, " ranks, which share the parts of a step"),
        to_text("--accumulate ", (training.accumulate + ranks - 1) / ranks * ranks));
  training.accumulate = ranks;
  std::cout << "accumulate: " << ranks << ", a batch for each rank, as it was left out" << std::endl;
  return true;
}

void record_accumulate(RunRecord& record, const TrainingOptions& training) {
  record.given.emplace_back("accumulate");
  for (auto& [name, value] : record.options)
    if (name == "accumulate") value = std::to_string(training.accumulate);
}

void require_same_on_all(Communicator& ranks, const std::vector<std::pair<std::string, std::string>>& given) {
  auto facts = given;
  facts.emplace_back("program", sha256(read_file(std::filesystem::read_symlink("/proc/self/exe"))));
  std::string mine;
  for (const auto& [name, value] : facts) mine += name + '\0' + value + '\0';
  const std::vector<std::string> all = gather_over_ranks(ranks, mine);
  std::string differences;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    std::istringstream first(all[0]), other(all[rank]);
    std::string name, other_name, value, other_value, list;
    while (std::getline(first, name, '\0') && std::getline(first, value, '\0') &&
           std::getline(other, other_name, '\0') && std::getline(other, other_value, '\0'))
      if (name == other_name ? value != other_value : list.empty())
        list += to_text(list.empty() ? "" : ", ", name, " ", in_quotes(value), " and ", in_quotes(other_value));
    differences += to_text(
        differences.empty() ? "" : "; ", "rank 0 and rank ", rank, " have ", list.empty() ? "other options" : list);
  }
  if (!differences.empty())
    throw InputError("ranks: ", differences, "; the same options, data and program on all required");
}

}  // namespace whence

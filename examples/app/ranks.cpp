#include "examples/app/ranks.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "examples/app/child.h"
#include "examples/app/code_hash.h"
#include "examples/app/interrupt.h"
#include "examples/app/progress.h"
#include "examples/app/run_main.h"
#include "examples/app/text.h"
#include "tensor/device/device_choice.h"
#include "tensor/ranks/collectives.h"

namespace whence {
namespace {

// The command line that this process was started with.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  if (arguments.empty())
    throw SystemError("--processes: /proc/self/cmdline cannot be read; the ranks are started with it");
  arguments[0] = "/proc/self/exe";  // this very file, even when another is built in its place
  return arguments;
}

// Processes of this command as ranks of this machine.
class StartedRanks {
 public:
  explicit StartedRanks(int count) {
    const std::vector<std::string> arguments = own_arguments();
    const std::string name = to_text(getpid(), "-", std::random_device{}());
    setenv("WHENCE_RANKS", std::to_string(count).c_str(), 1);
    setenv("WHENCE_RENDEZVOUS", name.c_str(), 1);
    try {
      for (int rank = 0; rank < count; ++rank) {
        setenv("WHENCE_RANK", std::to_string(rank).c_str(), 1);
        processes_.push_back(start_child(arguments, "", Errors::as_ours));
      }
    } catch (...) {
      signal_all(SIGKILL);
      wait_for_all();
      throw;
    }
  }

  int wait() {
    std::optional<double> kill_at;
    while (running() > 0) {
      if (interrupt_requested() && !asked_) signal_all(SIGUSR1), asked_ = true;  // which asks however often
      if (collect()) continue;
      if (failed_ && !kill_at) kill_at = steady_seconds() + seconds_to_end;
      if (kill_at && steady_seconds() > *kill_at) {
        std::cerr << "ranks: some did not end within " << seconds_to_end << " seconds of the first failure; killed\n";
        signal_all(SIGKILL);
        kill_at.reset();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return code_;
  }

 private:
  // A save that is under way may take a while; who waits for a dead rank has noticed long before.
  static constexpr double seconds_to_end = 60;

  std::ptrdiff_t running() const {
    return std::ranges::count_if(processes_, [](pid_t process) { return process > 0; });
  }
  void signal_all(int number) const {
    for (const pid_t process : processes_)
      if (process > 0) kill(process, number);
  }
  void wait_for_all() {
    for (const pid_t process : processes_)
      while (waitpid(process, nullptr, 0) < 0 && errno == EINTR) continue;
  }

  // Of one that has ended, if one has. What ends a rank by its own fault says more than that the others missed it.
  bool collect() {
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      int status = 0;
      if (processes_[rank] <= 0 || waitpid(processes_[rank], &status, WNOHANG) <= 0) continue;
      processes_[rank] = 0;
      const int code = exit_code_of(status);
      if (code == 0) return true;
      const bool interrupted = code == static_cast<int>(ExitCode::interrupted) || (asked_ && code == 128 + SIGUSR1);
      failed_ = failed_ || !interrupted;
      if (WIFSIGNALED(status) && !interrupted)
        std::cerr << "ranks: rank " << rank << " was ended by signal " << WTERMSIG(status) << std::endl;
      const int said = interrupted           ? static_cast<int>(ExitCode::interrupted)
                       : WIFSIGNALED(status) ? static_cast<int>(ExitCode::failed)
                                             : code;
      if (code_ == 0 || code_ == static_cast<int>(ExitCode::failed)) code_ = said;
      return true;
    }
    return false;
  }

  std::vector<pid_t> processes_;  // 0: ended
  bool asked_ = false, failed_ = false;
  int code_ = 0;
};

// Of a rank that would only repeat what rank 0 says.
void silence(int stream) {
  std::cout.flush();
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  dup2(nowhere, stream);
  close(nowhere);
}

int run_as_rank(Communicator& ranks, const std::function<int(Communicator*)>& work) {
  try {
    return work(&ranks);
  } catch (const LostRank& lost) {
    ranks.give_up(lost.what());
    if (ranks.rank() > 1) silence(STDERR_FILENO);  // two say it, as one of them may be the lost one
    if (interrupt_requested())
      throw Interrupted(to_text("stopped at the last checkpoint, as another rank had ended first: ", lost.what()));
    throw LostRank(to_text("rank ", ranks.rank(), ": ", lost.what()));
  } catch (const std::exception& error) {
    ranks.give_up(error.what());
    const bool of_all = dynamic_cast<const InputError*>(&error) || dynamic_cast<const Interrupted*>(&error);
    if (ranks.rank() > 0 && of_all) silence(STDERR_FILENO);  // if it is not of all, rank 0 hears of it and says so
    throw;
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
  if (launch.size == 1 && options.processes > 1) {
    if (!std::has_single_bit(static_cast<unsigned>(options.processes)))
      line.refuse("processes", "a power of two", "sums over ranks are halves of halves: 2, 4 or 8");
    install_interrupt_handler();
    return StartedRanks(options.processes).wait();
  }
  if (launch.by != "whence" && options.processes > 1)
    line.refuse("processes", to_text("1 under ", launch.by, ", which started ", launch.size, " ranks"), "leave it out");
  if (launch.size == 1) return work(nullptr);
  if (!line.given("threads")) machine.threads = std::max(1, machine.threads / launch.local_size);
  if (machine.device != "cpu") take_gpu(launch);  // before anything looks at GPUs
  if (launch.rank > 0) silence(STDOUT_FILENO);
  const Device device = choose_device(machine.device).device;
  const std::unique_ptr<Communicator> ranks = join(launch,
      {.body = options.communicator, .limit = options.limit, .rendezvous = options.rendezvous, .device = device});
  if (options.announced)
    std::cout << "ranks: " << launch.size << ", started by " << launch.by << ", over " << ranks->name()
              << (device.is_cpu() || launch.own_gpu ? "" : ", as some share a GPU, between which NCCL does not go")
              << std::endl;
  return run_as_rank(*ranks, work);
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
  facts.emplace_back("code", code_hash());
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

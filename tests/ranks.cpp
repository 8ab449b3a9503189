// What carries bytes between ranks of one machine, sums over them, and who started us. Ranks are threads here, or
// processes where they are to die; they only speak with each other, so that a fork needs no threads of its own.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include "tensor/random.h"
#include "tensor/ranks/collectives.h"
#include "tensor/ranks/communicator.h"
#include "tests/rank_threads.h"
#include "tests/reference.h"

using namespace whence;
using namespace whence::test;
namespace fs = std::filesystem;

namespace {

// What each process says in the end, and how long after the start. `work` may throw, which is what it says, or never
// come back, when it is ended after 20 seconds.
struct Said {
  std::string text;
  double seconds = 0;
};
std::vector<Said> in_processes(int size, double limit, const std::function<void(Communicator&)>& work) {
  const std::string identity = new_identity();
  struct Place {
    char text[600];
    double seconds;
  };
  const auto seconds = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  const std::size_t bytes = sizeof(Place) * static_cast<std::size_t>(size);
  auto* const places =
      static_cast<Place*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const double began = seconds();
  std::vector<pid_t> processes;
  for (int rank = 0; rank < size; ++rank) {
    processes.push_back(fork());
    if (processes.back() != 0) continue;
    std::string said = "done";
    try {
      const auto ranks = join_shared_memory(launch_of(rank, size, identity), limit);
      try {
        work(*ranks);
      } catch (const std::exception& error) {
        ranks->give_up(error.what());
        throw;
      }
    } catch (const std::exception& error) { said = error.what(); }
    std::strncpy(places[rank].text, said.c_str(), sizeof places[rank].text - 1);
    places[rank].seconds = seconds() - began;
    _exit(0);
  }
  std::thread end([&] {
    for (int tenths = 0; tenths < 200; ++tenths) {
      usleep(100000);
      bool all = true;
      for (int rank = 0; rank < size; ++rank) all = all && places[rank].text[0] != 0;
      if (all) return;
      if (seconds() - began > limit + 3) break;
    }
    for (const pid_t process : processes) kill(process, SIGKILL);
  });
  for (const pid_t process : processes) waitpid(process, nullptr, 0);
  end.join();
  std::vector<Said> said;
  for (int rank = 0; rank < size; ++rank) said.push_back({places[rank].text, places[rank].seconds});
  munmap(places, bytes);
  return said;
}

std::size_t left_behind() {
  std::size_t found = 0;
  for (const auto& entry : fs::directory_iterator("/dev/shm"))
    found += entry.path().filename().string().find(to_text("ranks-", getpid())) != std::string::npos;
  return found;
}

// ((0 + 1) + (2 + 3)) + ..., in the dtype.
template <class T> T tree(const std::vector<T>& terms, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return terms[begin];
  const std::size_t middle = begin + (end - begin) / 2;
  return tree(terms, begin, middle) + tree(terms, middle, end);
}

template <class T> void check_sums(int size, index_t numbers) {
  const auto term = [&](int rank, index_t k) {
    const Stream random(7, "ranks", static_cast<std::uint64_t>(rank));
    return static_cast<T>(random.normal(static_cast<std::uint64_t>(k)) * (k % 3 == 0 ? 1e6 : 1e-3));
  };
  in_threads(size, [&](Communicator& ranks) {
    const Tensor total = Tensor::empty({numbers}, sizeof(T) == 4 ? DType::f32 : DType::f64);
    for (index_t k = 0; k < numbers; ++k) total.data<T>()[k] = term(ranks.rank(), k);
    sum_over_ranks(ranks, total);
    index_t others = 0;
    for (index_t k = 0; k < numbers; ++k) {
      std::vector<T> terms;
      for (int rank = 0; rank < size; ++rank) terms.push_back(term(rank, k));
      others += total.data<T>()[k] != tree(terms, 0, terms.size());
    }
    if (others != 0) throw Error("of ", numbers, " sums ", others, " have other bits than the tree's");
  });
}

}  // namespace

TEST_CASE("ranks: sums are those of a balanced tree over them, bit for bit, of any number of numbers") {
  for (const int size : {1, 2, 4, 8}) {
    for (const index_t numbers : {0, 1, 3, 8, 1001, 300001}) {
      CAPTURE(size);
      CAPTURE(numbers);
      check_sums<float>(size, numbers);
      check_sums<double>(size, numbers);
    }
  }
}

TEST_CASE("ranks: gathers and broadcasts, of texts of different lengths too") {
  for (const int size : {1, 2, 4, 8}) {
    in_threads(size, [&](Communicator& ranks) {
      const int rank = ranks.rank();
      const auto require = [](bool holds, const char* what) {
        if (!holds) throw Error(what, " is not what was given");
      };
      const std::vector<std::string> texts = gather_over_ranks(ranks, std::string(static_cast<std::size_t>(rank), 'a'));
      for (int k = 0; k < size; ++k)
        require(texts[static_cast<std::size_t>(k)].size() == static_cast<std::size_t>(k), "a text");
      const auto numbers = gather_over_ranks(ranks, std::vector<double>{1.0 * rank, 0.1});
      for (int k = 0; k < size; ++k) require(numbers[static_cast<std::size_t>(2 * k)] == k, "a number");
      require(any_of_ranks(ranks, rank == size - 1) && !any_of_ranks(ranks, false), "a truth");
      require(broadcast(ranks, rank == 0 ? std::string("from 0") : std::string("no")) == "from 0", "a broadcast text");
      std::vector<std::byte> bytes(700001, std::byte(rank));
      broadcast(ranks, bytes);
      require(bytes == std::vector<std::byte>(700001, std::byte{0}), "broadcast bytes");
    });
  }
  CHECK(left_behind() == 0);
}

TEST_CASE("ranks: one that is killed is named by the others at once; one that gives up hands on its words") {
  const auto talk = [](Communicator& ranks, int turns) {
    for (int turn = 0; turn < turns; ++turn) (void)any_of_ranks(ranks, false);
  };
  const std::vector<Said> killed = in_processes(4, 15, [&](Communicator& ranks) {
    talk(ranks, 50);
    if (ranks.rank() == 2) raise(SIGKILL);
    talk(ranks, 1);
  });
  for (const std::size_t rank : {0UL, 1UL, 3UL}) {
    CHECK_MESSAGE(killed[rank].text.find("rank 2 ") != std::string::npos, killed[rank].text);
    CHECK(killed[rank].seconds < 10);
  }
  const std::vector<Said> gave_up = in_processes(4, 15, [&](Communicator& ranks) {
    talk(ranks, 50);
    if (ranks.rank() == 3) throw Error("the disk", " is full");
    talk(ranks, 1);
  });
  for (const std::size_t rank : {0UL, 1UL, 2UL})
    CHECK_MESSAGE(gave_up[rank].text.find("the disk is full") != std::string::npos, gave_up[rank].text);
  CHECK(left_behind() == 0);
}

TEST_CASE("ranks: one that hangs ends the others at the limit, by its number") {
  const std::vector<Said> said = in_processes(4, 1.5, [](Communicator& ranks) {
    (void)any_of_ranks(ranks, false);
    if (ranks.rank() == 1) raise(SIGSTOP);
    (void)any_of_ranks(ranks, false);
  });
  for (const std::size_t rank : {0UL, 2UL, 3UL}) {
    CHECK_MESSAGE(said[rank].text.find("rank 1 of 4 lives and has not answered") != std::string::npos, said[rank].text);
    CHECK(said[rank].seconds >= 1.5);
  }
  CHECK(left_behind() == 0);
}

TEST_CASE("ranks: one that ends after its last exchange has been heard by all") {
  for (int turn = 0; turn < 20; ++turn)
    for (const Said& said : in_processes(8, 15, [](Communicator& ranks) {
           if (ranks.rank() % 2 == 1) usleep(2000);
           std::vector<std::byte> mine(400000, std::byte(ranks.rank())), theirs(mine.size());
           ranks.exchange(ranks.rank() ^ 1, mine, theirs);
           if (theirs != std::vector<std::byte>(mine.size(), std::byte(ranks.rank() ^ 1)))
             throw Error("other", " bytes");
         }))
      CHECK(said.text == "done");
}

TEST_CASE("ranks: what cannot be is refused: three of them, one twice, other numbers, one that does not come") {
  CHECK(
      error_text([] { (void)join(launch_of(0, 3, new_identity())); }).find("3 given; 1, 2, 4, 8") != std::string::npos);
  Launch apart = launch_of(0, 2, new_identity());
  apart.local_size = 1;
  CHECK(error_text([&] { (void)join(apart, {.body = "shared"}); }).find("all on one required") != std::string::npos);
  CHECK(error_text([] {
    (void)join_shared_memory(launch_of(0, 2, new_identity()), 0.2);
  }).find("rank 1 of 2 has not come") != std::string::npos);
  const std::string identity = new_identity();
  std::thread first([&] {
    const auto ranks = join_shared_memory(launch_of(0, 2, identity), 20);
    (void)any_of_ranks(*ranks, false);
  });
  const std::string path = to_text("/dev/shm/whence-", geteuid(), "-", identity);
  while (!fs::exists(path) || fs::file_size(path) == 0) usleep(1000);
  usleep(50000);
  CHECK(error_text([&] { (void)join_shared_memory(launch_of(0, 2, identity), 5); }).find("two processes say") !=
        std::string::npos);
  CHECK(error_text([&] { (void)join_shared_memory(launch_of(2, 4, identity), 5); }).find("the same number for all") !=
        std::string::npos);
  {
    const auto ranks = join_shared_memory(launch_of(1, 2, identity), 20);  // the first was left alone by all that
    (void)any_of_ranks(*ranks, false);
    CHECK(error_text([&] { ranks->exchange(1, std::span<const std::byte>(), {}); }).find("a single bit") !=
          std::string::npos);
  }
  first.join();
  CHECK(left_behind() == 0);
}

TEST_CASE("ranks: what an earlier start left in shared memory, all killed, is not taken for their successors") {
  const std::string identity = new_identity();
  const pid_t killed = fork();
  if (killed == 0) {
    (void)join_shared_memory(launch_of(0, 2, identity), 30);
    _exit(0);
  }
  const std::string path = to_text("/dev/shm/whence-", geteuid(), "-", identity);
  while (!fs::exists(path) || fs::file_size(path) == 0) usleep(1000);
  usleep(50000);
  kill(killed, SIGKILL);
  waitpid(killed, nullptr, 0);
  REQUIRE(fs::exists(path));
  std::thread second([&] { (void)any_of_ranks(*join_shared_memory(launch_of(1, 2, identity), 20), false); });
  (void)any_of_ranks(*join_shared_memory(launch_of(0, 2, identity), 20), true);
  second.join();
  CHECK(left_behind() == 0);
}

TEST_CASE("ranks: who started us, from the variables of launchers") {
  const auto found = [](std::map<std::string, std::string> variables) {
    return find_launch([variables = std::move(variables)](const char* name) {
      const auto at = variables.find(name);
      return at == variables.end() ? std::nullopt : std::optional(at->second);
    });
  };
  using Variables = std::map<std::string, std::string>;
  struct Case {
    Variables given;
    std::string by;
    int rank, size, local_rank, local_size;
  };
  const Variables torchrun{{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"},
      {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29501"}, {"TORCHELASTIC_RUN_ID", "a"},
      {"TORCHELASTIC_RESTART_COUNT", "0"}};
  const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"PMIX_NAMESPACE", "1003945985"}};
  const Variables mpich{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  const Variables srun{{"SLURM_PROCID", "6"}, {"SLURM_NTASKS", "7"}, {"SLURM_STEP_NUM_TASKS", "7"},
      {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "3"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}, {"SLURM_JOB_ID", "12"},
      {"SLURM_STEP_ID", "0"}};
  const auto with = [](Variables variables, const Variables& more) {
    for (const auto& [name, value] : more) variables[name] = value;
    return variables;
  };
  for (const Case& one : std::vector<Case>{{{}, "", 0, 1, 0, 1}, {torchrun, "torchrun", 5, 8, 1, 4},
           {open_mpi, "Open MPI", 3, 4, 1, 2}, {mpich, "PMI", 1, 2, 1, 2}, {srun, "SLURM", 6, 7, 0, 1},
           {with(srun, {{"PMI_RANK", "6"}, {"PMI_SIZE", "7"}}), "PMI", 6, 7, 0, 1},  // --mpi=pmi2
           {with(srun, {{"SLURM_NODEID", "1"}, {"SLURM_LOCALID", "1"}}), "SLURM", 6, 7, 1, 2},
           {with(srun, {{"SLURM_STEP_ID", "4294967291"}}), "", 0, 1, 0, 1},    // sbatch
           {{{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "12"}}, "", 0, 1, 0, 1},  // salloc
           {{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, "", 0, 1, 0, 1},
           {with(srun, open_mpi), "Open MPI", 3, 4, 1, 2},  // mpirun in a job
           {with(open_mpi, {{"WHENCE_RANK", "0"}, {"WHENCE_RANKS", "1"}}), "", 0, 1, 0, 1}}) {
    const Launch launch = found(one.given);
    CAPTURE(one.by);
    CHECK(launch.by == one.by);
    CHECK(launch.rank == one.rank);
    CHECK(launch.size == one.size);
    CHECK(launch.local_rank == one.local_rank);
    CHECK(launch.local_size == one.local_size);
  }
  CHECK(found(torchrun).address == "node1:29501");
  // Of two starts side by side, or one after the other, none finds the other's ranks.
  CHECK(found(torchrun).identity == found(with(torchrun, {{"RANK", "4"}, {"LOCAL_RANK", "0"}})).identity);
  for (const char* name : {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"})
    CHECK(found(torchrun).identity != found(with(torchrun, {{name, "7"}})).identity);
  CHECK(found(open_mpi).identity != found(with(open_mpi, {{"PMIX_NAMESPACE", "7"}})).identity);
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"})
    CHECK(found(srun).identity != found(with(srun, {{name, "7"}})).identity);
  const auto refusal = [&](const Variables& given) { return error_text([&] { (void)found(given); }); };
  CHECK(refusal({{"RANK", "1"}}).find("RANK given in the environment without WORLD_SIZE") != std::string::npos);
  CHECK(refusal(with(torchrun, {{"RANK", "8"}})).find("RANK=8 and WORLD_SIZE=8") != std::string::npos);
  CHECK(refusal(with(torchrun, {{"RANK", "one"}})).find("RANK='one'") != std::string::npos);
  CHECK(refusal(with(torchrun, {{"LOCAL_RANK", "4"}})).find("rank 4 of 4 on this machine") != std::string::npos);
}

// Transport of bytes between ranks of one machine, sums over them, and the detection of launchers. Ranks are threads
// here, or children if they must die.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <map>

#include "examples/whence/cli/progress.h"
#include "examples/whence/machine/ranks.h"
#include "tensor/random.h"
#include "tensor/ranks/collectives.h"
#include "tensor/ranks/fork.h"
#include "tests/support/programs.h"
#include "tests/support/rank_threads.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

// Each child's last message, and its time since the start. If `work` throws, the error is its message. If it never returns,
// it is killed 3 seconds after the limit.
struct Said {
  std::string text;
  double seconds = 0;
};
std::vector<Said> in_processes(int size, double limit, const std::function<void(Communicator&)>& work) {
  const Scratch scratch("ranks-say");
  const auto place = [&](int rank) { return scratch / std::to_string(rank); };
  const double began = steady_seconds();
  ForkedRanks children(size, limit);
  if (std::unique_ptr<Communicator> own = children.fork()) {
    std::string said = "done";
    try {
      work(*own);
    } catch (const std::exception& error) {
      said = error.what();
      own->give_up(said);
    }
    std::ofstream(place(own->rank())) << said;
    own.reset();
    _exit(0);
  }
  std::vector<Said> said(static_cast<std::size_t>(size));
  while (children.running() && steady_seconds() < began + limit + 3) {
    if (const auto one = children.ended())
      said[static_cast<std::size_t>(one->rank)] = {
          one->news.empty() ? text_of(place(one->rank)) : one->news, steady_seconds() - began};
    usleep(2000);
  }
  return said;
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
}

TEST_CASE("ranks: one that hangs ends the others at the limit, by its number") {
  const std::vector<Said> said = in_processes(4, 1.5, [](Communicator& ranks) {
    (void)any_of_ranks(ranks, false);
    if (ranks.rank() == 1) raise(SIGSTOP);
    (void)any_of_ranks(ranks, false);
  });
  for (const std::size_t rank : {0UL, 2UL, 3UL}) {
    CHECK_MESSAGE(
        said[rank].text.find("rank 1 of 4 is alive and has not answered") != std::string::npos, said[rank].text);
    CHECK(said[rank].seconds >= 1.5);
  }
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

TEST_CASE("ranks: a death is reported to ranks that wait for a third, and only one rank prints the error") {
  const std::vector<Said> said = in_processes(8, 15, [](Communicator& ranks) {
    if (ranks.rank() == 7) _exit(5);
    if (ranks.rank() == 6) usleep(200000);
    for (;;) (void)any_of_ranks(ranks, false);
  });
  for (std::size_t rank = 0; rank < 7; ++rank) {
    CHECK_MESSAGE(said[rank].text.find("rank 7 of 8 ended with exit code 5") != std::string::npos, said[rank].text);
    CHECK(said[rank].seconds < 10);
  }
  const ForkedRanks memory(4, 15);
  const auto first = memory.seat(2), second = memory.seat(1);
  CHECK(first->give_up("the disk is full"));
  const std::string heard = error_text([&] { second->look_around(); });
  CHECK_MESSAGE(heard.find("rank 2 of 4 gave up: the disk is full") != std::string::npos, heard);
  CHECK_FALSE(second->give_up(heard));
  CHECK(error_text([&] { memory.seat(0)->exchange(3, std::span<const std::byte>(), {}); }).find("in one bit") !=
        std::string::npos);
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
  const Variables torchrun{{"RANK", "5"}, {"WORLD_SIZE", "8"}};
  const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}};
  const auto with = [](Variables variables, const Variables& more) {
    for (const auto& [name, value] : more) variables[name] = value;
    return variables;
  };
  for (const Case& one : std::vector<Case>{{{}, "", 0, 1, 0, 1}, {{{"RANK", "0"}, {"WORLD_SIZE", "1"}}, "", 0, 1, 0, 1},
           {open_mpi, "Open MPI", 0, 4, 0, 1}, {{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "PMI", 0, 2, 0, 1},
           {{{"SLURM_STEP_NUM_TASKS", "8"}, {"PMI_SIZE", "8"}}, "PMI", 0, 8, 0, 1},  // srun --mpi=pmi2
           {{{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "12"}}, "", 0, 1, 0, 1},        // salloc
           {{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, "", 0, 1, 0, 1}}) {
    const Launch launch = found(one.given);
    CAPTURE(one.by);
    CHECK(launch.by == one.by);
    CHECK(launch.rank == one.rank);
    CHECK(launch.size == one.size);
    CHECK(launch.local_rank == one.local_rank);
    CHECK(launch.local_size == one.local_size);
  }
  const auto refusal = [&](const Variables& given) { return error_text([&] { (void)found(given); }); };
  CHECK(refusal(torchrun).find("torchrun started 8 of them; mpirun or srun required") != std::string::npos);
  CHECK(refusal(with(torchrun, {{"WORLD_SIZE", "two"}})).find("WORLD_SIZE='two'") != std::string::npos);
  CHECK(refusal({{"PMI_SIZE", "3"}}).find("3 given; 1, 2, 4, 8") != std::string::npos);
}

// Sums over ranks, which are threads here, and the detection of launchers.

#include "examples/whence/machine/ranks.h"
#include "tests/support/rank_threads.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

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
  in_threads(size, [&](RankThread& ranks) {
    const Tensor total = Tensor::empty({numbers}, sizeof(T) == 4 ? DType::f32 : DType::f64);
    for (index_t k = 0; k < numbers; ++k) total.data<T>()[k] = term(ranks.rank(), k);
    sum_over_ranks(ranks, total);
    const int rest = static_cast<int>(numbers % size), levels = std::countr_zero(static_cast<unsigned>(size));
    if (numbers >= size && rest == 0 &&
        (ranks.exchanges != 2 * levels ||
            ranks.bytes != static_cast<std::size_t>(2 * (size - 1) * (numbers / size)) * sizeof(T)))
      throw Error(ranks.exchanges, " exchanges of ", ranks.bytes, " bytes in all");
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

TEST_CASE(
    "ranks: a sum is that of a balanced tree over them, bit for bit, in 2 log2 W exchanges of 2 (W - 1) / W bytes") {
  for (const int size : {1, 2, 4, 8}) {
    for (const index_t numbers : {0, 1, 3, 8, 1001, 300001}) {
      INFO(size, ", numbers ", numbers);
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
      const std::string error = error_text([&] { ranks.exchange(rank ^ 3, std::span<const std::byte>(), {}); });
      require(error.find("in one bit") != error.npos, "an error");
    });
  }
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
    int size;
  };
  for (const Case& one : std::vector<Case>{{{}, "", 1}, {{{"RANK", "0"}, {"WORLD_SIZE", "1"}}, "", 1},
           {{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, "Open MPI", 4},
           {{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "PMI", 2},
           {{{"PMIX_RANK", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}}, "PMIx", 4},  // srun --mpi=pmix
           {{{"SLURM_STEP_NUM_TASKS", "8"}, {"PMI_SIZE", "8"}}, "PMI", 8},    // srun --mpi=pmi2
           {{{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "12"}}, "", 1},          // salloc
           {{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, "PMI", 1}}) {
    const Launch launch = found(one.given);
    CAPTURE(one.by);
    CHECK(launch.by == one.by);
    CHECK(launch.size == one.size);
    CHECK(std::array{launch.rank, launch.local_rank, launch.local_size} == std::array{0, 0, 1});  // until MPI says
  }
  const auto refusal = [&](const Variables& given) { return error_text([&] { (void)found(given); }); };
  CHECK(has(refusal({{"RANK", "5"}, {"WORLD_SIZE", "8"}}), "torchrun started 8"));
  CHECK(has(refusal({{"RANK", "5"}, {"WORLD_SIZE", "two"}}), "WORLD_SIZE='two'"));
  CHECK(has(refusal({{"PMI_SIZE", "3"}}), "3 given; 1, 2, 4, 8"));
}

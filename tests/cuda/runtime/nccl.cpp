// Ranks that exchange numbers between cards. nccl_stand_in/stand_in.cpp replaces NCCL, between threads that share one
// emulated GPU. Nothing here was run with a real NCCL.
#include <cstdlib>

#include "tests/support/rank_threads.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

struct StandIn {
  StandIn() { ::setenv("WHENCE_NCCL_LIBRARY", WHENCE_NCCL_STAND_IN, 1); }
  ~StandIn() { ::unsetenv("WHENCE_NCCL_LIBRARY"); }
};

std::vector<double> sum_on(Communicator& ranks, Device device) {
  Tensor numbers = Tensor::empty({1001}, DType::f32);
  const Stream random(7, "ranks", static_cast<std::uint64_t>(ranks.rank()));
  for (index_t k = 0; k < 1001; ++k)
    numbers.data<float>()[k] = static_cast<float>(random.normal(static_cast<std::uint64_t>(k)));
  numbers = raw::to_device(numbers, device);
  sum_over_ranks(ranks, numbers);
  return numbers.to_vector();
}

}  // namespace

TEST_CASE("ranks over NCCL's stand-in: the sums of ranks that exchange over the CPU") {
  const StandIn library;
  in_threads(4, [](RankThread& ranks) {
    const Launch launch{.rank = ranks.rank(), .size = 4, .local_rank = ranks.rank(), .local_size = 4};
    const auto nccl = join_nccl(launch, ranks, Device::cuda(0), 20);
    if (nccl->name() != "NCCL 2.27.3 and threads") throw Error("another name: ", nccl->name());
    const std::vector<double> wanted = sum_on(ranks, Device::cpu());
    const int before = ranks.exchanges;
    if (sum_on(*nccl, Device::cuda(0)) != wanted) throw Error("other", " sums");
    if (ranks.exchanges != before) throw Error("numbers went", " over the CPU");
  });
}

TEST_CASE("ranks over NCCL's stand-in: a peer that ends, or hangs, is named") {
  const StandIn library;
  for (const bool hangs : {false, true}) {
    std::string said;
    in_threads(2, [&](RankThread& ranks) {
      const Launch launch{.rank = ranks.rank(), .size = 2, .local_rank = ranks.rank(), .local_size = 2};
      auto nccl = join_nccl(launch, ranks, Device::cuda(0), hangs ? 1 : 20);
      if (ranks.rank() == 0) said = error_text([&] { (void)sum_on(*nccl, Device::cuda(0)); });
      if (ranks.rank() == 0 || hangs) (void)any_of_ranks(ranks, false);
      if (ranks.rank() == 1 && !hangs) {
        (void)error_text([&] {
          const auto destroyed = std::move(nccl);
          throw Error("the disk", " is full");
        });
        (void)any_of_ranks(ranks, false);
      }
    });
    CHECK_MESSAGE(
        said.find(hangs ? "rank 1 of 2 has not answered rank 0 for 1 seconds" : "with rank 1: ") != std::string::npos,
        said);
  }
}

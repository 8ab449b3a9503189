#include "examples/whence/run/shared_training.h"

#include <span>
#include <sstream>

#include "nn/io/sha256.h"
#include "tensor/error.h"
#include "tensor/ranks/collectives.h"
#include "tensor/raw.h"

namespace whence {

void take_from_rank_0(Communicator& ranks, TrainingState& state, MixedPrecision& precision) {
  std::vector<double> counts{static_cast<double>(state.step), static_cast<double>(state.skipped)};
  broadcast(ranks, std::as_writable_bytes(std::span(counts)));
  state.step = static_cast<index_t>(counts[0]), state.skipped = static_cast<index_t>(counts[1]);
  std::string facts;
  for (const auto& [name, value] : state.facts) facts += name + '\0' + value + '\0';
  std::istringstream read(broadcast(ranks, facts));
  for (std::string name, value; std::getline(read, name, '\0') && std::getline(read, value, '\0');)
    state.facts[name] = value;
  if (state.step == 0) return;
  for (const Module::Parameter& weight : precision.weights()) broadcast(ranks, weight.tensor.detach());
  for (const Adam::Moments& moments : precision.optimizer().moments())
    broadcast(ranks, moments.first), broadcast(ranks, moments.second);
  precision.optimizer().set_steps(state.updates());
}

void require_same_weights(Communicator& ranks, const MixedPrecision& precision, std::int64_t step) {
  Sha256 hash;
  for (const Module::Parameter& weight : precision.weights()) {
    const Tensor here = raw::to_device(raw::contiguous(weight.tensor.detach()), Device::cpu());
    hash.add({here.bytes(), static_cast<std::size_t>(here.numel()) * size_of(here.dtype())});
  }
  const std::vector<std::string> all = gather_over_ranks(ranks, hash.hexadecimal());
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw Error("ranks: at step ", step, " the weights of rank ", rank,
          " are not those of rank 0; processors of one kind required, or memory without errors; nothing is saved");
}

}  // namespace whence

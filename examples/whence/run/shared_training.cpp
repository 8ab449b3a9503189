#include "examples/whence/run/shared_training.h"

#include <map>
#include <span>
#include <sstream>

#include "examples/whence/cli/text.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using Facts = std::map<std::string, std::string>;

std::string text_of_facts(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += name + '\0' + value + '\0';
  return text;
}

Facts facts_of(const std::string& text) {
  Facts facts;
  std::istringstream read(text);
  for (std::string name, value; std::getline(read, name, '\0') && std::getline(read, value, '\0');) facts[name] = value;
  return facts;
}

}  // namespace

void require_same_on_all(Communicator& ranks, const std::vector<std::pair<std::string, std::string>>& given) {
  Facts mine(given.begin(), given.end());
  mine["program"] = sha256(read_file(std::filesystem::read_symlink("/proc/self/exe")));
  const std::vector<std::string> all = gather_over_ranks(ranks, text_of_facts(mine));
  std::vector<std::string> differences;
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    for (Facts theirs = facts_of(all[rank]); const auto& [name, value] : facts_of(all[0]))
      if (theirs[name] != value)
        differences.push_back(
            to_text("rank 0 and rank ", rank, " have ", name, ' ', in_quotes(value), " and ", in_quotes(theirs[name])));
  if (!differences.empty())
    throw InputError("ranks: ", first_few(differences, "; "), "; the same options, data and program on all required");
}

void take_from_rank_0(Communicator& ranks, TrainingState& state, MixedPrecision& precision) {
  std::vector<double> counts{static_cast<double>(state.step), static_cast<double>(state.skipped)};
  broadcast(ranks, std::as_writable_bytes(std::span(counts)));
  state.step = static_cast<index_t>(counts[0]), state.skipped = static_cast<index_t>(counts[1]);
  state.facts = facts_of(broadcast(ranks, text_of_facts(state.facts)));
  if (state.step == 0) return;
  for (const Module::Parameter& weight : precision.weights()) broadcast(ranks, weight.tensor.detach());
  for (const Optimizer::Moments& moments : precision.optimizer().moments())
    for (const Tensor& moment : {moments.first, moments.second})
      if (moment.defined()) broadcast(ranks, moment);
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

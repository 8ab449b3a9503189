// Training by several ranks: the bits of one rank, in every precision; agreement of all; reports of errors.
#include <set>

#include "examples/whence/run/shared_training.h"
#include "nn/training/training.h"
#include "tests/support/json.h"
#include "tests/support/rank_threads.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;
namespace fs = std::filesystem;

namespace {

// One rank has no communicator, as in a training by one process.
void run_ranks(int size, const std::function<void(Communicator*)>& work) {
  if (size == 1) return work(nullptr);
  in_threads(size, [&](Communicator& ranks) { work(&ranks); });
}

struct Taken {
  std::vector<StepOutcome> outcomes;
  std::vector<std::vector<double>> weights;
};

// Takes three steps of a small model, of `parts` parts each, by `size` ranks. Returns the state of each rank.
std::vector<Taken> taken(
    int size, std::int64_t parts, DType precision, const std::string& scheme, double loss_scale = 65536) {
  std::vector<Taken> all(static_cast<std::size_t>(size));
  run_ranks(size, [&](Communicator* ranks) {
    Transformer model(
        {.vocabulary = 11, .length = 7, .dim = 12, .layers = 2, .heads = 3, .scheme = scheme, .dropout = 0.1});
    model.initialise(3);
    MixedPrecision mixed(model, precision, {.weight_decay = 0.1}, {.initial = loss_scale});
    const MakeBatch batch = [](std::int64_t part) {  // with different numbers of targets
      const Tensor tokens = random_tokens(1 + part % 3, 7, 11, static_cast<std::uint64_t>(part));
      return TrainingBatch{{tokens, tokens}, tokens.numel(), tokens.numel()};
    };
    const LossOf loss_of = [&](const TrainingBatch& given, std::int64_t part) {
      const Pass pass{.training = true, .seed = 5, .step = static_cast<std::uint64_t>(part)};
      return cross_entropy_sum(model(given.tensors[0], pass), given.tensors[1]);
    };
    TrainingStep step(mixed, batch, loss_of, {.accumulate = parts, .clip = 0.5, .ranks = ranks});
    Taken& own = all[static_cast<std::size_t>(ranks ? ranks->rank() : 0)];
    for (std::int64_t n = 1; n <= 3; ++n) own.outcomes.push_back(step.take(n, 1e-2));
    for (const Module::Parameter& weight : mixed.weights()) own.weights.push_back(weight.tensor.to_vector());
  });
  return all;
}

void check_same(const Taken& found, const Taken& wanted) {
  CHECK(found.weights == wanted.weights);
  REQUIRE(found.outcomes.size() == wanted.outcomes.size());
  for (std::size_t n = 0; n < wanted.outcomes.size(); ++n) {
    CHECK(found.outcomes[n].loss == wanted.outcomes[n].loss);
    CHECK(to_text(found.outcomes[n].gradient_norm) == to_text(wanted.outcomes[n].gradient_norm));  // nan where skipped
    CHECK(found.outcomes[n].tokens == wanted.outcomes[n].tokens);
    CHECK(found.outcomes[n].skipped == wanted.outcomes[n].skipped);
  }
}

}  // namespace

TEST_CASE("ranks: 1, 2, 4 and 8 of them make the same weights, losses and norms in every precision, each of them") {
  for (const auto& [precision, scheme] :
      {std::pair(DType::f32, "cope(p_max=4)"), {DType::bf16, "cdape(kerple)"}, {DType::f16, "rope"}}) {
    const Taken one = taken(1, 8, precision, scheme)[0];
    CHECK(one.outcomes[0].loss > 1);
    for (const int size : {2, 4, 8})
      for (const Taken& each : taken(size, 8, precision, scheme)) check_same(each, one);
  }
}

TEST_CASE("ranks: parts that are no power of two, and a loss scale that overflows on one of them") {
  const Taken six = taken(1, 6, DType::f32, "alibi")[0];
  for (const Taken& each : taken(2, 6, DType::f32, "alibi")) check_same(each, six);
  const Taken skips = taken(1, 4, DType::f16, "none", 16777216)[0];
  CHECK(skips.outcomes[0].skipped);
  for (const Taken& each : taken(4, 4, DType::f16, "none", 16777216)) check_same(each, skips);
  CHECK_THROWS_WITH_AS(taken(4, 6, DType::f32, "none"), doctest::Contains("a multiple"), InputError);
}

TEST_CASE("ranks: one with other options, or other data, is named on all, and nothing is trained") {
  std::vector<std::string> said(2);
  in_threads(2, [&](Communicator& ranks) {
    const bool other = ranks.rank() == 1;
    said[other ? 1 : 0] = error_text([&] {
      require_same_on_all(ranks, {{"data", "a"}, {"lr", other ? "0.5" : "0.0003"}});
    });
  });
  for (const std::string& text : said) CHECK_MESSAGE(has(text, "1 have lr \"0.0003\""), text);
}

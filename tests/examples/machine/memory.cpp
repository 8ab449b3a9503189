// Planned and measured memory of training, part by part; and refusals with advice that works.
#include "examples/whence/machine/memory.h"

#include <sys/resource.h>
#include <unistd.h>
#include <fstream>

#include "examples/whence/run/training.h"
#include "nn/training/training.h"
#include "tensor/backend.h"
#include "tensor/device/allocator.h"
#include "tensor/kernels.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

PlannedTraining training_of(const TransformerOptions& model, index_t batch, std::int64_t accumulate = 1) {
  return {.model = model, .sequences = batch, .length = model.length, .accumulate = accumulate};
}

std::size_t measured_peak(const PlannedTraining& training) {
  Allocator& allocator = memory_of(Device::cpu());
  const std::size_t live = allocator.statistics().live;
  allocator.reset_peak();
  Transformer model(training.model);
  model.initialise(1);
  MixedPrecision precision(model, training.precision, {.weight_decay = 0.1});
  const Tensor tokens = random_tokens(training.sequences, training.length, training.model.vocabulary);
  const TrainingBatch batch{{tokens, tokens}, tokens.numel(), tokens.numel()};
  TrainingStep step(
      precision, [&](std::int64_t) { return batch; }, token_loss(model, 1), {.accumulate = training.accumulate});
  for (std::int64_t n = 1; n <= 3; ++n) (void)step.take(n, 1e-3);
  return allocator.statistics().peak - live;
}

const TransformerOptions base{.vocabulary = 64, .length = 64, .dim = 64, .layers = 2, .heads = 4, .scheme = "rope"};

TransformerOptions with(const std::function<void(TransformerOptions&)>& change) {
  TransformerOptions options = base;
  change(options);
  return options;
}

std::string refusal_of(const PlannedTraining& training, std::size_t free) {
  return error_text([&] { (void)require_step_memory(training, free); });
}

}  // namespace

TEST_CASE("training memory: planned within 10 % of the measured peak") {
  struct Case {
    TransformerOptions model;
    index_t batch;
    std::int64_t accumulate = 1;
    DType precision = DType::f32;
  };
  using Options = TransformerOptions;
  const std::vector<Case> cases{{with([](Options& o) { o.scheme = "cope"; }), 8},
      {with([](Options& o) { o.layers = 4, o.dim = 96, o.length = 100; }), 6},
      {with([](Options& o) { o.scheme = "cdape(kerple)", o.executor = "reference", o.length = 128; }), 2},
      {with([](Options& o) { o.scheme = "cdape(kerple)", o.executor = "strips", o.length = 192; }), 2},
      {with([](Options& o) { o.scheme = "cope + rope", o.executor = "strips", o.length = 200; }), 3},
      {with([](Options& o) { o.scheme = "absolute", o.vocabulary = 5000; }), 4},
      {with([](Options& o) {
         o.scheme = "alibi", o.dropout = o.pattern_dropout = o.hidden_dropout = 0.1, o.length = 90;
       }),
          4, 3},
      {with([](Options& o) { o.scheme = "shaw", o.causal = false; }), 3, 2},
      {with([](Options& o) { o.scheme = "fire", o.length = 96; }), 6, 1, DType::bf16},
      {with([](Options& o) { o.scheme = "t5", o.tied = true, o.vocabulary = 3000; }), 4, 2, DType::f16},
      {with([](Options& o) { o.scheme = "transformer_xl", o.activation = Activation::swiglu; }), 8, 4},
      {with([](Options& o) { o.scheme = "cope", o.layers = 4, o.recompute_layers = true; }), 6},
      {with([](Options& o) { o.dim = 128, o.length = 16; }), 1, 24},
      {with([](Options& o) { o.dim = 128, o.length = 16; }), 1, 16},
      {with([](Options& o) { o.scheme = "none", o.dim = 256, o.layers = 3, o.length = 16; }), 1}};
  for (const Case& each : cases) {
    CAPTURE(each.model.scheme);
    PlannedTraining training = training_of(each.model, each.batch, each.accumulate);
    training.precision = each.precision;
    const double planned = static_cast<double>(planned_memory(training).peak),
                 measured = static_cast<double>(measured_peak(training));
    CHECK_MESSAGE(std::fabs(planned / measured - 1) < 0.1, planned, " planned, ", measured, " measured");
  }
}

TEST_CASE("training memory: parts are those of the model, and nothing is left behind") {
  const PlannedTraining training = training_of(base, 4);
  const std::size_t live = memory_of(Device::planned(Device::cpu())).statistics().live;
  const TrainingMemory found = planned_memory(training);
  CHECK(memory_of(Device::planned(Device::cpu())).statistics().live == live);
  std::size_t weights = 0;
  const Transformer model(base);
  for (const Module::Parameter& parameter : model.parameters())
    weights += Allocator::block_size(static_cast<std::size_t>(parameter.tensor.numel()) * 4);
  CHECK(found.weights == weights);
  CHECK(found.gradients == weights);
  CHECK(found.optimiser == 2 * weights);
  CHECK(found.peak > found.weights + found.optimiser + found.attention + found.layers + found.around);
  // Twice the layers keep twice the memory. Twice the vocabulary changes only the memory around the layers.
  const TrainingMemory deeper = planned_memory(training_of(with([](auto& o) { o.layers = 4; }), 4)),
                       wordier = planned_memory(training_of(with([](auto& o) { o.vocabulary = 128; }), 4));
  CHECK(
      (deeper.attention == 2 * found.attention && deeper.layers == 2 * found.layers && deeper.around == found.around));
  CHECK((wordier.attention == found.attention && wordier.layers == found.layers && wordier.around > found.around));
  // Recomputed layers keep only their input x.
  const TrainingMemory kept = planned_memory(training_of(with([](auto& o) { o.layers = 8; }), 4)),
                       again = planned_memory(
                           training_of(with([](auto& o) { o.layers = 8, o.recompute_layers = true; }), 4));
  CHECK(again.attention + again.layers < (kept.attention + kept.layers) / 8);
  CHECK(again.peak - again.weights - again.optimiser < (kept.peak - kept.weights - kept.optimiser) / 2);
  // Strips keep operands where the reference keeps scores.
  const auto attention_with = [](const std::string& executor) {
    return planned_memory(training_of(with([&](auto& o) { o.executor = executor, o.length = 256; }), 2)).attention;
  };
  CHECK(attention_with("reference") > 4 * attention_with("strips"));
}

TEST_CASE("training memory: what cannot fit is refused, with what takes less") {
  const PlannedTraining even = training_of(base, 12, 2), odd = training_of(base, 3);
  const std::size_t all = planned_memory(even).peak;
  CHECK(refusal_of(even, all).empty());
  CHECK(refusal_of(even, 0).empty());  // an unknown limit refuses nothing
  const std::string refused = refusal_of(even, all - 1);
  CHECK((has(refused, bytes_text(all)) && has(refused, "--batch 6 --accumulate 4")));
  CHECK(has(refusal_of(odd, 1000), "smaller --batch"));
  // Scores of one layer beyond the limit: refused before masks of that size are made.
  const PlannedTraining long_one = training_of(with([](auto& o) { o.length = 600, o.executor = "reference"; }), 1);
  CHECK(has(refusal_of(long_one, 1 << 20), "which takes"));
}

TEST_CASE("the planned device counts, computes nothing and reads as 0") {
  for (const Device like : {Device::cpu(), Device::cuda(0)}) {
    const Device device = Device::planned(like);
    Allocator& allocator = memory_of(device);
    const std::size_t live = allocator.statistics().live;
    {
      const Tensor x = raw::to_device(Tensor::ones({1000, 256}), device);
      CHECK(allocator.statistics().live == live + Allocator::block_size(1000 * 256 * 4));
      const Tensor y = matmul(x, transpose(x));
      CHECK(y.shape() == Shape{1000, 1000});
      CHECK(sum(y).item() == 0);
      CHECK_THROWS_WITH_AS((void)y.at({1000, 0}), doctest::Contains("position [1000,0] given"), Error);
    }
    CHECK(allocator.statistics().live == live);
  }
  CHECK(to_string(Device::planned(Device::cpu())) == "planned cpu");
  CHECK(to_string(Device::planned(Device::cuda(0))) == "planned gpu");
}

TEST_CASE("free memory: no more than the machine says is available") {
  const std::size_t free = free_memory(Device::cpu());
  std::ifstream lines("/proc/meminfo");
  std::size_t total = 0;
  std::string name;
  lines >> name >> total;
  REQUIRE(name == "MemTotal:");
  CHECK(free > 0);
  CHECK(free <= total * 1024);

  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  constexpr std::size_t left = std::size_t{64} << 20;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  const rlimit limit{pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + left, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
  const std::size_t limited = free_memory(Device::cpu());
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  const MemoryStatistics held = memory_of(Device::cpu()).statistics();
  CHECK(limited > 0);
  CHECK(limited <= left + held.reserved - held.live);
}

// What training is planned to take beside what it takes, part by part; and what is refused, with advice that holds.
#include "examples/whence/machine/training_memory.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "autograd/ops.h"
#include "examples/whence/machine/memory_plan.h"
#include "tensor/device/allocator.h"
#include "tensor/device/backend.h"
#include "tensor/kernels.h"
#include "tensor/raw.h"
#include "tests/models.h"

using namespace whence;
using namespace whence::test;

namespace {

PlannedTraining training_of(const TransformerOptions& model, index_t batch, std::int64_t accumulate = 1) {
  PlannedTraining training{.model = model, .accumulate = accumulate};
  const Tensor tokens = random_tokens(batch, model.length, model.vocabulary);
  training.batch = {{tokens, tokens}, tokens.numel(), tokens.numel()};
  training.loss_of = [](Transformer& of) -> LossOf {
    return [&of](const TrainingBatch& given, std::int64_t part) {
      const Pass pass{.training = true, .seed = 1, .step = static_cast<std::uint64_t>(part)};
      return cross_entropy_sum(of(given.tensors[0], pass), given.tensors[1]);
    };
  };
  return training;
}

// Of the same steps, taken.
std::size_t measured_peak(const PlannedTraining& training) {
  Allocator& allocator = memory_of(Device::cpu());
  const std::size_t live = allocator.statistics().live;
  allocator.reset_peak();
  Transformer model(training.model);
  model.initialise(1);
  MixedPrecision precision(model, training.precision, {.weight_decay = 0.1});
  TrainingStep step(precision, [&](std::int64_t) { return training.batch; }, training.loss_of(model),
      {.accumulate = training.accumulate});
  for (std::int64_t n = 1; n <= 3; ++n) (void)step.take(n, 1e-3);
  return allocator.statistics().peak - live;
}

const TransformerOptions base{.vocabulary = 64, .length = 64, .dim = 64, .layers = 2, .heads = 4, .scheme = "rope"};

TransformerOptions with(const std::function<void(TransformerOptions&)>& change) {
  TransformerOptions options = base;
  change(options);
  return options;
}

// The number of an option in a text of advice.
index_t number_behind(const std::string& text, const std::string& option) {
  const std::size_t found = text.find(option + " ");
  REQUIRE(found != std::string::npos);
  return std::stoll(text.substr(found + option.size() + 1));
}

std::string refusal_of(const PlannedTraining& training, const MemoryLimits& limits) {
  try {
    (void)require_step_memory(training, limits);
  } catch (const OutOfMemory& error) { return error.what(); }
  return {};
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
  // Twice the layers keep twice as much; twice the vocabulary changes only what is around them.
  const TrainingMemory deeper = planned_memory(training_of(with([](auto& o) { o.layers = 4; }), 4)),
                       wordier = planned_memory(training_of(with([](auto& o) { o.vocabulary = 128; }), 4));
  CHECK(deeper.attention == 2 * found.attention);
  CHECK(deeper.layers == 2 * found.layers);
  CHECK(deeper.around == found.around);
  CHECK(wordier.attention == found.attention);
  CHECK(wordier.layers == found.layers);
  CHECK(wordier.around > found.around);
  // Strips keep operands where the reference keeps scores.
  const auto attention_with = [](const std::string& executor) {
    return planned_memory(training_of(with([&](auto& o) { o.executor = executor, o.length = 256; }), 2)).attention;
  };
  CHECK(attention_with("reference") > 4 * attention_with("strips"));
}

TEST_CASE("training memory: what cannot fit is refused with the smallest change that does") {
  // Scores weigh most: an executor that keeps none.
  const PlannedTraining scores =
      training_of(with([](auto& o) { o.scheme = "cope", o.executor = "reference", o.layers = 6, o.length = 256; }), 2);
  const std::size_t all = planned_memory(scores).peak;
  CHECK(refusal_of(scores, {all, false}).empty());
  const std::string executor = refusal_of(scores, {all / 2, false});
  CHECK(executor.find("memory: a step of 2 sequences of 256 tokens asked for, which takes " + bytes_text(all)) == 0);
  CHECK(executor.find("; --executor ") != std::string::npos);
  CHECK(executor.find("--batch") == std::string::npos);

  // The layers weigh most: fewer sequences at a time, the same ones to a step.
  const PlannedTraining layers = training_of(with([](auto& o) { o.layers = 4; }), 12, 2);
  const std::size_t limit = planned_memory(layers).peak / 2;
  const std::string batch = refusal_of(layers, {limit, true});
  const index_t count = number_behind(batch, "--batch"), times = number_behind(batch, "--accumulate");
  CHECK(count * times == 24);
  const auto fits = [&](index_t sequences) {
    return planned_memory(training_of(layers.model, sequences, 24 / sequences)).peak <= limit;
  };
  CHECK(fits(count));
  for (index_t larger = count + 1; larger < 12; ++larger)
    if (12 % larger == 0) CHECK(!fits(larger));

  // One sequence, in tiles, is too much: shorter ones, where there is an option for it.
  const PlannedTraining one = training_of(with([](auto& o) { o.length = 512, o.executor = "tiled"; }), 1);
  const std::size_t half = planned_memory(one).peak / 2;
  CHECK(number_behind(refusal_of(one, {half, true}), "--length") < 512);
  CHECK(refusal_of(one, {half, false}).find("choose a smaller model") != std::string::npos);
  CHECK(refusal_of(one, {1000, true}).find("choose a smaller model") != std::string::npos);
  CHECK(refusal_of(one, {0, true}).empty());  // a limit that is not known refuses nothing

  // Scores of one layer beyond the limit: refused before masks of that size are made.
  const PlannedTraining long_one = training_of(with([](auto& o) { o.length = 600, o.executor = "reference"; }), 1);
  CHECK(refusal_of(long_one, {1 << 20, false}).find("which takes at least ") != std::string::npos);
}

TEST_CASE("training memory: one line where it is small, a table where it is not") {
  const PlannedTraining training = training_of(base, 4);
  const TrainingMemory found = planned_memory(training);
  const std::string line = memory_text(found, training, std::size_t{1} << 40);
  CHECK(line == "memory: " + bytes_text(found.peak) + " at the peak of a step; 1 TiB are free\n");
  const std::string table = memory_text(found, training, 2 * found.peak);
  for (const std::string part : {"weights", "optimiser", "attention, executor auto", "rest of the layers",
           "embeddings, logits, loss", "gradients ("})
    CHECK_MESSAGE(table.find(part) != std::string::npos, part, " in ", table);
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
      CHECK_THROWS_AS((void)y.at({1000, 0}), Error);
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

  // of what RLIMIT_AS leaves, too
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

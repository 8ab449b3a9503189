// Training in 16 bits: masters, rounded copies, sums of gradients in f32, the loss scale;
// checkpoints that resume to the same bits.
#include "nn/training/precision.h"

#include "examples/whence/study/task_study.h"
#include "nn/io/checkpoint.h"
#include "nn/io/safetensors.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

struct TwoParameters final : Module {
  Tensor weight = param("weight", {3}, Init::normal(0, 1));
  Tensor still = param("still", {2}, Init::normal(0, 1));
};

TransformerOptions small_model(const tasks::Task& task, const std::string& scheme) {
  TransformerOptions options = task.model();
  options.dim = 16, options.layers = 1, options.heads = 2, options.scheme = scheme;
  return options;
}

TrainingOptions options_for(DType precision, std::int64_t steps) {
  TrainingOptions options;
  options.steps = steps, options.learning_rate = 3e-3, options.warm_up = 2, options.precision = precision;
  options.log_every = 1, options.quiet = true;
  return options;
}

std::vector<double> losses_of(const TrainingResult& result) {
  std::vector<double> losses;
  for (const LossPoint& point : result.curve) losses.push_back(point.loss);
  return losses;
}

}  // namespace

TEST_CASE("precision: masters are the f32 weights that the model had, the model their roundings") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    TwoParameters model;
    model.initialise(3);
    model.freeze("still");
    const std::vector<double> weight = model.weight.to_vector(), still = model.still.to_vector();
    MixedPrecision precision(model, dtype, {});
    CHECK(model.weight.dtype() == dtype);
    REQUIRE(precision.weights().size() == 2);
    CHECK(precision.weights()[0].path == "weight");
    CHECK(precision.weights()[0].tensor.dtype() == DType::f32);
    CHECK(precision.weights()[0].tensor.to_vector() == weight);
    CHECK(precision.weights()[1].tensor.to_vector() == still);
    CHECK(model.weight.to_vector() == raw::cast(precision.weights()[0].tensor.detach(), dtype).to_vector());
    CHECK(model.weight.to_vector() != weight);
    // A step too small for 16 bits is kept: 1e-5 of numbers near 1, taken 100 times.
    for (int step = 0; step < 100; ++step) {
      precision.optimizer().zero_gradients();
      backward(sum(cast(model.weight, DType::f32)));
      precision.optimizer().step(1e-5);
    }
    for (index_t i = 0; i < 3; ++i)
      CHECK(precision.weights()[0].tensor.at({i}) ==
            doctest::Approx(weight[static_cast<std::size_t>(i)] - 1e-3).epsilon(1e-4));
    CHECK(model.weight.to_vector() == raw::cast(precision.weights()[0].tensor.detach(), dtype).to_vector());
    raw::copy_into(Tensor::of({1, 2, 3}, {3}), precision.weights()[0].tensor.detach());
    precision.round_weights();
    CHECK(model.weight.to_vector() == std::vector<double>{1, 2, 3});
  }
}

TEST_CASE("precision: f32 leaves the model as it is, its own tensors being the weights") {
  TwoParameters model;
  model.initialise(3);
  MixedPrecision precision(model, DType::f32, {});
  CHECK(precision.weights()[0].tensor.identity() == model.weight.identity());
  CHECK_FALSE(precision.loss_scale().has_value());
  CHECK_THROWS_WITH_AS((void)storage_dtype_of("f8"), doctest::Contains("precision: 'f8'"), InputError);
}

TEST_CASE("precision: a 16-bit parameter's gradient is summed in f32, within a pass and over passes") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor x = requires_grad(Tensor::full({1}, 1, dtype));
    const Tensor y = Tensor::full({1}, 1, dtype), small = Tensor::full({1}, 1.0 / 4096, dtype);
    Tensor total = cast(x * y, DType::f32);
    for (int k = 0; k < 64; ++k)
      total = total + cast(x * small, DType::f32);  // 1 + 64/4096: in 16 bits each term would be lost
    backward(total, Tensor::ones({1}), {.keep_graph = true});
    CHECK(gradient(x).dtype() == DType::f32);
    CHECK(gradient(x).item() == 1 + 64.0 / 4096);
    CHECK(grad(total, Tensor::ones({1}), {x})[0].dtype() == dtype);
    const Tensor z = requires_grad(Tensor::full({1}, 1, dtype));
    backward(z * y, Tensor::ones({1}, dtype));
    CHECK(gradient(z).dtype() == dtype);
    for (int k = 0; k < 64; ++k) backward(z * small, Tensor::ones({1}, dtype));
    CHECK(gradient(z).item() == 1 + 64.0 / 4096);
  }
}

TEST_CASE("loss scale: grows after good steps, halves where gradients overflow, and stops with advice") {
  LossScale scale({.initial = 8, .least = 2, .most = 16, .growth_steps = 3});
  for (index_t step = 1; step <= 3; ++step) scale.update(true, step);
  CHECK(scale.value() == 16);
  for (index_t step = 4; step <= 6; ++step) scale.update(true, step);
  CHECK(scale.value() == 16);  // the most
  scale.update(true, 7);
  scale.update(false, 8);
  CHECK(scale.value() == 8);
  CHECK(scale.state().good_steps == 0);
  CHECK(scale.state().skipped == 1);
  LossScale again({.initial = 4, .least = 2, .most = 16});
  again.restore(scale.state());
  CHECK(again.value() == 8);
  again.update(false, 9);
  again.update(false, 10);
  const std::string text = error_text<NotFinite>([&] { again.update(false, 11); });
  for (const char* part : {"at step 11 with a loss scale of 2;", "bf16", "learning rate"})
    CHECK_MESSAGE(has(text, part), text);
  CHECK_THROWS_WITH_AS(LossScale({.initial = 3}), doctest::Contains("loss scale: 3"), InputError);
  CHECK_THROWS_WITH_AS(LossScale({.growth_steps = 0}), doctest::Contains("growth after 0"), InputError);
}

TEST_CASE("precision: every precision learns flip-flop as f32 does, and f16's skipped steps change nothing else") {
  const auto task = tasks::make_task("flip_flop", {"--length", "24"});
  Transformer model(small_model(*task, "cope(p_max=8)"));
  const auto run = [&](DType precision, double initial_scale) {
    TrainingOptions options = options_for(precision, 30);
    options.scaling.initial = initial_scale;
    const TaskStudy study(*task, {.batch = 4});
    return train(job_of(study, model, options), options);
  };
  const TrainingResult exact = run(DType::f32, 65536), bf16 = run(DType::bf16, 65536), f16 = run(DType::f16, 256);
  CHECK(f16.skipped == 0);
  CHECK(f16.loss_scale == 256);
  CHECK(bf16.loss_scale == 0);
  for (std::size_t k = 0; k < 30; ++k) {
    CHECK(std::abs(losses_of(f16)[k] - losses_of(exact)[k]) < 0.01);
    CHECK(std::abs(losses_of(bf16)[k] - losses_of(exact)[k]) < 0.05);
  }
  // 2^24 overflows at first. These steps are skipped, and the loss still falls.
  const TrainingResult skipping = run(DType::f16, 16777216);
  CHECK(skipping.skipped > 0);
  CHECK(skipping.loss_scale == 16777216 / std::exp2(static_cast<double>(skipping.skipped)));
  CHECK(losses_of(skipping).back() < losses_of(skipping).front());
}

TEST_CASE("precision: a loss that overflows in forward, and a scale that collapses, end the run with advice") {
  TwoParameters model;
  TrainingOptions options = options_for(DType::f16, 20);
  TrainingJob job{.label = "overflow", .model = &model};
  job.batch = [](std::int64_t) { return TrainingBatch{.counted = 1, .tokens = 1}; };
  job.loss_of = [&](const TrainingBatch&, std::int64_t) {
    return sum(cast((model.weight + sum(model.still)) * 1e5, DType::f32));
  };
  const std::string forward = error_text<NotFinite>([&] { (void)train(job, options); });
  CHECK_MESSAGE(has(forward, "--precision bf16"), forward);
  // A finite loss whose gradient alone is infinite: 1e5 through a cast to f16.
  job.loss_of = [&](const TrainingBatch&, std::int64_t) {
    return sum(cast(model.weight + sum(model.still), DType::f32) * 1e30) * 1e-25;
  };
  const std::string backward_overflow = error_text([&] { (void)train(job, options); });
  CHECK_MESSAGE(has(backward_overflow, "at step 17"), backward_overflow);
  // The search for the first op that is not finite ignores overflows of the loss scale.
  options.check_finite = true;
  CHECK(error_text([&] { (void)train(job, options); }) == backward_overflow);
  job.loss_of = [&](const TrainingBatch&, std::int64_t) {
    return sum(cast((model.weight + sum(model.still)) * 1e5, DType::f32));
  };
  const std::string named = error_text([&] { (void)train(job, options); });
  CHECK_MESSAGE(has(named, "affine: its"), named);
}

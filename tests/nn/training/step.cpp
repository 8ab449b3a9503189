// A training step: plain and wrapped steps make the same numbers; a step that fails does not count.
#include "nn/training/training.h"

#include <limits>

#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

struct Weight final : Module {
  Tensor w = param("w", {3}, Init::normal(0, 1));
};

}  // namespace

TEST_CASE("step: the gradients of a mean, clipped, move the weights; a training step of one part is that") {
  Weight one, other;
  one.initialise(1), other.initialise(1);
  const std::vector<double> before = one.w.to_vector();
  const TrainingBatch batch{.counted = 2, .tokens = 5};  // two targets, each with a loss of |w|^2 / 2
  const auto loss_of = [](const Weight& model) {
    return [&model](const TrainingBatch&, std::int64_t) { return sum(square(model.w)); };
  };
  double norm = 0;
  for (const double w : before) norm += w * w;
  norm = std::sqrt(norm);
  const SgdOptions options{.momentum = 0.9};
  Sgd sgd(one, options);
  MixedPrecision precision(options, other, DType::f32);
  TrainingStep training(precision, [&](std::int64_t) { return batch; }, loss_of(other), {.clip = norm / 2});
  for (std::int64_t n = 1; n <= 3; ++n) {
    const auto once = [&] { return LossSum{add_gradients(batch, 1, loss_of(one)).item(), 2, 5}; };
    const StepOutcome plain = step(sgd, once, 0.5, norm / 2), taken = training.take(n, 0.5);
    if (n == 1) {
      CHECK(plain.gradient_norm == doctest::Approx(norm).epsilon(1e-6));
      for (std::size_t i = 0; i < 3; ++i)
        CHECK(one.w.to_vector()[i] == doctest::Approx(before[i] * 0.75).epsilon(1e-6));
    }
    CHECK(plain.loss == taken.loss);
    CHECK(plain.gradient_norm == taken.gradient_norm);
    CHECK(plain.tokens == 5);
    CHECK(one.w.to_vector() == other.w.to_vector());
  }
}

TEST_CASE("training step: a model without a parameter that trains is refused") {
  struct Empty final : Module {
  } model;
  MixedPrecision precision(model, DType::f32, AdamOptions{});
  CHECK_THROWS_WITH_AS(TrainingStep(precision, {}, {}), doctest::Contains("every parameter"), InputError);
}

TEST_CASE("training step: subnormal numbers are 0 in it, and kept after it") {
  Weight model;
  model.initialise(1);
  MixedPrecision precision(model, DType::f32, {});
  const auto kept = [] {
    const volatile float least = std::numeric_limits<float>::min();
    return least / 2 != 0;
  };
  bool inside = true;
  const auto loss_of = [&](const TrainingBatch&, std::int64_t) {
    inside = kept();
    return sum(square(model.w));
  };
  TrainingStep(
      precision, [](std::int64_t) { return TrainingBatch{.counted = 1}; }, loss_of)
      .take(1, 0.1);
  CHECK(!inside);
  CHECK(kept());
}

TEST_CASE("training step: one that runs out of memory does not count, recorded or not") {
  for (const bool recorded : {false, true}) {
    CAPTURE(recorded);
    Weight model;
    model.initialise(1);
    MixedPrecision precision(model, DType::f32, {});
    bool full = true;
    const auto batch = [](std::int64_t) { return TrainingBatch{.counted = 1, .tokens = 1}; };
    const auto loss_of = [&](const TrainingBatch&, std::int64_t) {
      if (full) throw OutOfMemory("memory: 400 bytes asked for", {});
      return sum(square(model.w));
    };
    TrainingStep step(precision, batch, loss_of, {.recorded = recorded});
    CHECK_THROWS_AS((void)step.take(1, 0.1), OutOfMemory);
    CHECK(precision.optimizer().steps() == 0);
    full = false;
    (void)step.take(1, 0.1);
    CHECK(precision.optimizer().steps() == 1);
  }
}

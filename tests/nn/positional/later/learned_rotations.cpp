// Properties of schemes that came after the papers. Worked numbers: tests/nn/positional/worked/later.cpp.
#include <numbers>

#include "autograd/inspect/capture.h"
#include "autograd/ops.h"
#include "nn/attention/plan.h"
#include "tensor/raw.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

TEST_CASE("later: in selective_rope padding takes no step") {
  const Capture capture("steps");
  (void)Bare("selective_rope(bias=yes)").logits(random_inputs(9, Sequence::padded(present_but(9, 3, true)), 2));
  CHECK(largest(slice(slice(capture["steps"].value(), 0, 1, 2), 2, 0, 3)) == 0);
}

TEST_CASE("later: selective_rope's default steps add up in 16 bits to the angles of f32") {
  const AttendInputs inputs = random_inputs(96, Sequence::run(96), 1, 1, 4);
  const auto angles = [&](DType dtype) {
    const Bare scheme("selective_rope(bias=yes)", 1, 4, 96);
    scheme.fill("up.weight", 0), scheme.fill("bias", 0.3125);
    scheme.root().to(dtype);
    AttendInputs of = inputs;
    for (Tensor* each : {&of.x, &of.query, &of.key, &of.value}) *each = raw::cast(each->detach(), dtype);
    const Capture capture("angles");
    (void)scheme.logits(of);
    return capture["angles"].value();
  };
  CHECK(distance(angles(DType::bf16), angles(DType::f32)) < 1e-4);
}

TEST_CASE("later: carope at one frequency for all tokens is rope, and starts there") {
  const AttendInputs inputs = random_inputs(9);
  const Bare carope("carope"), rope("rope");
  carope.fill("frequency.weight", 0);
  carope.fill("frequency.bias", carope.root().parameters()[1].init.first);
  CHECK(distance(carope.logits(inputs), rope.logits(inputs)) < 1e-12);
  carope.fill("frequency.bias", 0);
  CHECK(distance(carope.logits(inputs), rope.logits(inputs)) > 1e-3);
}

TEST_CASE("later: a step out of a phase's range is clamped to its end") {
  const Bare pope("pope(phase=uniform)");
  const Module::Parameter phase = pope.root().parameters()[0];
  const double turn = -2 * std::numbers::pi;
  raw::copy_into(Tensor::of({1, -1, -7, turn, 0, 0, 0, 0}, phase.tensor.shape(), DType::f64), phase.tensor);
  phase.put_inside_bounds();
  CHECK(phase.tensor.to_vector() == std::vector<double>{0, -1, turn, turn, 0, 0, 0, 0});
}

TEST_CASE("later: xpos is rope where nothing fades, and its numbers stay finite over 8192 tokens in f32") {
  const AttendInputs inputs = random_inputs(9);
  CHECK(distance(Bare("xpos(scale_base=1e12)").logits(inputs), Bare("rope").logits(inputs)) < 1e-10);
  AttendInputs far = random_inputs(8192, Sequence::run(8192), 1, 1, 4);
  for (Tensor* each : {&far.query, &far.key, &far.value}) *each = cast(*each, DType::f32).detach();
  far.x = {};
  const Bare xpos("xpos", 1, 4);
  double largest = 0;
  for (const double number : xpos.output(far, Executor::tiled).to_vector())
    largest = std::isfinite(number) ? std::max(largest, std::fabs(number)) : std::numeric_limits<double>::infinity();
  CHECK(largest < 10);
  CHECK_THROWS_WITH_AS((void)Bare("xpos(scale_base=64)", 1, 4).output(far, Executor::tiled),
      doctest::Contains("8191 apart in"), InputError);
}

TEST_CASE("later: xpos counts from the middle of each sequence, whatever else is in the batch") {
  const Bare xpos("xpos(scale_base=4)");
  AttendInputs both = random_inputs(9, Sequence::run(9), 2);
  const Tensor apart = xpos.output(both);
  const Tensor places = concat_along(
      0, {reshape(Tensor::arange(9, DType::f64), {1, 9}), reshape(Tensor::arange(9, DType::f64) + 1e6, {1, 9})});
  both.sequence.positions.query = both.sequence.positions.key = places;
  CHECK(distance(slice(xpos.output(both), 0, 0, 1), slice(apart, 0, 0, 1)) == 0);
  CHECK(distance(xpos.output(both), apart) < 1e-9);
  // Padding on the left does not move the middle: the factors are those of the tokens.
  const AttendInputs padded = random_inputs(9, Sequence::padded(present_but(9, 3, true)), 2);
  AttendInputs alone = padded;
  for (Tensor* each : {&alone.query, &alone.key, &alone.value}) *each = raw::contiguous(slice(*each, 2, 3, 9).detach());
  alone.x = {}, alone.sequence = Sequence::run(6);
  const auto keys_of = [&](const AttendInputs& inputs) {
    const Capture capture("rotated_k");
    (void)xpos.output(inputs);
    return capture["rotated_k"].value();
  };
  CHECK(distance(slice(slice(keys_of(padded), 2, 3, 9), 0, 1, 2), slice(keys_of(alone), 0, 1, 2)) == 0);
}

TEST_CASE("later: rope without a rotated pair is none, and claims to read no positions") {
  const AttendInputs inputs = random_inputs(9);
  const Bare still("rope(keep=0)");
  CHECK(distance(still.logits(inputs), Bare("none").logits(inputs)) == 0);
  CHECK(distance(Bare("rope(keep=0.4)").logits(inputs), Bare("none").logits(inputs)) == 0);  // 0.4 of two pairs is none
  CHECK_THROWS_WITH_AS(Bare("interpolated(rope(keep=0), factor=2)"), doctest::Contains("no positions"), InputError);
}

TEST_CASE("later: the length that dynamic and longrope follow is a number of tokens, wherever their positions begin") {
  for (const char* text :
      {"rope(scaling=dynamic, factor=2, original=4)",
          "rope(scaling=longrope, original=9, short_factor=1:2, long_factor=1.5:4)", "yarn(original=4, dynamic=yes)"}) {
    CAPTURE(text);
    const AttendInputs inputs = random_inputs(9);
    AttendInputs later = inputs;
    later.sequence.positions.query = later.sequence.positions.key = inputs.sequence.positions.key + 100.0;
    CHECK(distance(Bare(text).logits(later), Bare(text).logits(inputs)) < 1e-12);
  }
}

TEST_CASE("later: qk_norm bounds scores, makes lengths of no account, and is not a second rotation") {
  const AttendInputs inputs = random_inputs(9);
  AttendInputs longer = inputs;
  longer.query = inputs.query * 1e4, longer.key = inputs.key * 1e4;
  const Bare bounded("qk_norm(weight=none) + rope");
  CHECK(distance(bounded.logits(inputs), bounded.logits(longer)) < 1e-4);
  for (const double logit : bounded.logits(longer).to_vector()) CHECK(std::fabs(logit) <= 2);  // sqrt(d)
  // A rotation does not change lengths.
  CHECK(distance(bounded.logits(inputs), Bare("rope + qk_norm(weight=none)").logits(inputs)) < 1e-12);
  CHECK_THROWS_WITH_AS(Bare("rope + qk_norm"), doctest::Contains("qk_norm: learned"), InputError);
  CHECK_THROWS_WITH_AS(Bare("rope + qk_norm(weight=none) + yarn"), doctest::Contains("rope: given"), InputError);
}

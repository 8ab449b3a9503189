// Properties of stick-breaking attention and ssmax. Worked numbers: tests/nn/positional/worked/later.cpp.
#include "autograd/inspect/capture.h"
#include "nn/attention/plan.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

// Returns queries of ones, and keys with one logit each for all queries, d = 1.
AttendInputs with_logits(const std::vector<double>& logits) {
  const auto tokens = static_cast<index_t>(logits.size());
  return {.x = {},
      .query = Tensor::ones({1, 1, tokens, 1}, DType::f64),
      .key = requires_grad(Tensor::of(logits, {1, 1, tokens, 1}, DType::f64)),
      .value = requires_grad(normal({1, 1, tokens, 1}, 3)),
      .sequence = Sequence::run(tokens)};
}

}  // namespace

TEST_CASE("stick_breaking: a key that a mask hides breaks nothing off, and the rest is lost with a row's own token") {
  AttendInputs inputs = with_logits(std::vector<double>(5, std::log(0.25 / 0.75)));
  const Tensor mask = Tensor::ones({1, 1, 5, 5}, DType::boolean);
  mask.data<bool>()[4 * 5 + 2] = mask.data<bool>()[3 * 5 + 3] = false;
  inputs.sequence.given_mask = mask;
  const Bare scheme("stick_breaking(rest=self)", 1, 1, 5);
  const Tensor pattern = scheme.run(inputs, Executor::reference).pattern;
  const std::vector<double> row_3{0.25 * 0.75 * 0.75, 0.25 * 0.75, 0.25, 0, 0},
      row_4{0.25 * 0.75 * 0.75, 0.25 * 0.75, 0, 0.25, 0.75 * 0.75 * 0.75};
  for (index_t j = 0; j < 5; ++j) {
    CHECK(std::fabs(pattern.at({0, 0, 3, j}) - row_3[static_cast<std::size_t>(j)]) < 1e-15);
    CHECK(std::fabs(pattern.at({0, 0, 4, j}) - row_4[static_cast<std::size_t>(j)]) < 1e-15);
  }
}

TEST_CASE("stick_breaking: behind a key that took the whole stick nothing has a weight or a gradient") {
  std::vector<double> logits(200, -0.5);
  logits[150] = 800;
  const AttendInputs inputs = with_logits(logits);
  for (const char* text : {"stick_breaking", "stick_breaking(rest=self)"}) {
    const Bare scheme(text, 1, 1, 200);
    for (const Executor executor : all_executors) {
      CAPTURE(std::string(name_of(executor)));
      const Tensor last = slice(scheme.output(inputs, executor), 2, 199, 200);
      const std::vector<Tensor> by = grad(last, Tensor::ones(last.shape(), DType::f64), {inputs.key, inputs.value});
      for (const Tensor& gradient : by) CHECK(largest(slice(gradient, 2, 0, 150)) == 0);
      CHECK(by[0].at({0, 0, 150, 0}) == 0);  // saturated
      CHECK(by[1].at({0, 0, 150, 0}) > 0);
      CHECK(by[0].at({0, 0, 151, 0}) != 0);
    }
  }
}

TEST_CASE("stick_breaking: 2048 tokens in f32 are numbers, weights are not negative, and rows add up to the stick") {
  const BareAttention scheme("stick_breaking(rest=self)", {4, 1, 2048});
  for (const double size : {1e-3, 1.0, 60.0}) {  // all keys take a half; some take all of it; each all or nothing
    CAPTURE(size);
    AttendInputs inputs = random_inputs(scheme, 1, 2048, 5, DType::f32), exact = inputs;
    inputs.query = inputs.query.detach() * size;
    exact.query = raw::cast(inputs.query, DType::f64), exact.key = raw::cast(inputs.key.detach(), DType::f64);
    exact.value = raw::cast(inputs.value.detach(), DType::f64);
    const BareAttention::Result found = scheme.run(inputs, Executor::reference);
    double least = 0, farthest = 0;
    const std::vector<double> weights = found.pattern.to_vector(), sums = sum(found.pattern, {-1}).to_vector();
    for (const double weight : weights) least = std::min(least, weight);
    for (const double row : sums) farthest = std::max(farthest, std::fabs(row - 1));
    CHECK(least == 0);
    CHECK(farthest < 2e-5);
    const std::vector<Named> wanted =
        output_and_gradients(scheme, exact, Executor::reference, random_cotangent(exact, 6));
    for (const Executor executor : {Executor::reference, Executor::tiled}) {
      CAPTURE(std::string(name_of(executor)));
      const std::vector<Named> all = output_and_gradients(scheme, inputs, executor, random_cotangent(inputs, 6));
      for (std::size_t k = 0; k < all.size(); ++k) {
        CAPTURE(all[k].name);
        CHECK(distance(all[k].tensor, wanted[k].tensor) < 5e-5 * std::max(1.0, largest(wanted[k].tensor)));
      }
    }
  }
}

TEST_CASE("ssmax: padding is not counted, a decoded row counts as in the whole run, and it must be the last map") {
  const Tensor present = present_but(7, 3, true);
  const Bare scheme("ssmax");
  scheme.fill("strength", 2);
  const auto factors = [&](const AttendInputs& inputs) {
    const Capture capture("*factor");
    (void)scheme.output(inputs);
    return capture["factor"].value();
  };
  const Tensor padded = factors(random_inputs(7, Sequence::padded(present), 2));
  for (index_t i = 0; i < 7; ++i) {
    CHECK(padded.at({0, 1, i, 0}) == doctest::Approx(2 * std::log(static_cast<double>(i + 1))));
    CHECK(padded.at({1, 1, i, 0}) == doctest::Approx(2 * std::log(std::max<double>(1, static_cast<double>(i) - 2))));
  }
  AttendInputs row = random_inputs(7, Sequence::continued(6, 1, 9));
  row.query = slice(row.query, 2, 6, 7);
  CHECK(factors(row).at({0, 0, 0, 0}) == doctest::Approx(2 * std::log(7.0)));
  CHECK(error_text<InputError>([] { Bare("ssmax + dape(kerple, width=3)"); }).find("write ssmax as the last") !=
        std::string::npos);
}

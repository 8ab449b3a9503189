// Properties of the schemes that came after the papers. Worked numbers: worked/examples.cpp.
#include <numbers>

#include "autograd/inspect/capture.h"
#include "nn/attention/plan.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

// Returns what the probe shows in a pass of the reference.
Tensor shown(const Bare& scheme, const AttendInputs& inputs, const char* probe) {
  const Capture capture(probe);
  (void)scheme.output(inputs);
  return capture[probe].value();
}

// Returns the inputs with every operand as `f` makes it.
AttendInputs mapped(AttendInputs inputs, const std::function<Tensor(const Tensor&)>& f) {
  for (Tensor* each : {&inputs.x, &inputs.query, &inputs.key, &inputs.value}) *each = f(*each);
  return inputs;
}
std::function<Tensor(const Tensor&)> rounded_to(DType dtype) {
  return [dtype](const Tensor& x) { return raw::cast(x.detach(), dtype); };
}

// PaTH token by token: each key so far is reflected by the next token.
Tensor path_scores(const AttendInputs& inputs, const Tensor& w, const Tensor& beta) {
  std::vector<Tensor> rows;
  Tensor keys = slice(inputs.key, 2, 0, 0);
  const index_t length = inputs.key.size(2);
  for (index_t t = 0; t < length; ++t) {
    const Tensor own = slice(w, 2, t, t + 1), strength = unsqueeze(slice(beta, 2, t, t + 1), 3);
    keys = keys - matmul(keys, transpose(own)) * (strength * own);
    keys = concat_along(2, {keys, slice(inputs.key, 2, t, t + 1)});
    const Tensor row = matmul(slice(inputs.query, 2, t, t + 1), transpose(keys), 0.5);  // 1 / sqrt(d)
    rows.push_back(concat_along(3, {row, Tensor::zeros({1, 2, 1, length - t - 1}, DType::f64)}));
  }
  return concat_along(2, rows);  // [b h i j]
}

// Returns the inputs with a mask that hides token 2 from all other tokens.
AttendInputs without_token_2(AttendInputs inputs) {
  const Tensor mask = Tensor::ones({1, 1, 9, 9}, DType::boolean);
  for (index_t i = 0; i < 9; ++i) mask.data<bool>()[i * 9 + 2] = i == 2;
  inputs.sequence.given_mask = mask;
  return inputs;
}

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

TEST_CASE("selective_rope: padding takes no step, and default steps add up in 16 bits to the angles of f32") {
  const Tensor steps =
      shown(Bare("selective_rope(bias=yes)"), random_inputs(9, Sequence::padded(present_but(9, 3, 0)), 2), "steps");
  CHECK(largest(slice(slice(steps, 0, 1, 2), 2, 0, 3)) == 0);
  const AttendInputs inputs = random_inputs(96, Sequence::run(96), 1, 1, 4);
  const auto angles = [&](DType dtype) {
    const Bare scheme("selective_rope(bias=yes)", 1, 4, 96);
    scheme.fill("up.weight", 0), scheme.fill("bias", 0.3125);
    scheme.root().to(dtype);
    return shown(scheme, mapped(inputs, rounded_to(dtype)), "angles");
  };
  CHECK(distance(angles(DType::bf16), angles(DType::f32)) < 1e-4);
}

TEST_CASE("carope starts at one frequency for all tokens, and is rope there") {
  const AttendInputs inputs = random_inputs(9);
  const Bare carope("carope");
  carope.fill("frequency.weight", 0), carope.fill("frequency.bias", carope.root().parameters()[1].init.first);
  CHECK(distance(carope.logits(inputs), Bare("rope").logits(inputs)) < 1e-12);
}

TEST_CASE("later: a step out of a phase's range is clamped to its end") {
  const Bare pope("pope(phase=uniform)");
  const Module::Parameter phase = pope.root().parameters()[0];
  const double turn = -2 * std::numbers::pi;
  raw::copy_into(Tensor::of({1, -1, -7, turn, 0, 0, 0, 0}, phase.tensor.shape(), DType::f64), phase.tensor);
  phase.put_inside_bounds();
  CHECK(phase.tensor.to_vector() == std::vector<double>{0, -1, turn, turn, 0, 0, 0, 0});
}

TEST_CASE("xpos: numbers stay finite over 8192 tokens in f32") {
  AttendInputs far = random_inputs(8192, Sequence::run(8192), 1, 1, 4);
  far = mapped(far, rounded_to(DType::f32)), far.x = {};
  double largest = 0;
  for (const double number : Bare("xpos", 1, 4).output(far, Executor::tiled).to_vector())
    largest = std::isfinite(number) ? std::max(largest, std::fabs(number)) : std::numeric_limits<double>::infinity();
  CHECK(largest < 10);
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
  const AttendInputs padded = random_inputs(9, Sequence::padded(present_but(9, 3, 0)), 2);
  AttendInputs alone = padded;
  for (Tensor* each : {&alone.query, &alone.key, &alone.value}) *each = raw::contiguous(slice(*each, 2, 3, 9).detach());
  alone.x = {}, alone.sequence = Sequence::run(6);
  CHECK(distance(slice(slice(shown(xpos, padded, "rotated_k"), 2, 3, 9), 0, 1, 2),
            slice(shown(xpos, alone, "rotated_k"), 0, 1, 2)) == 0);
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
}

TEST_CASE("path: blocks give what the reflections give one by one, in value and gradients") {
  const AttendInputs inputs = random_inputs(150);  // two blocks of 64 and a part of one
  const Bare path("path(rank=3)");
  const Capture capture("w", "beta");
  const Tensor logits = path.logits(inputs), cotangent = normal(logits.shape(), 7);
  const std::vector<Tensor> found = grad(sum(logits * cotangent), {}, {inputs.query, inputs.key, inputs.x});
  const Tensor w = requires_grad(capture["w"].value().detach()), beta = requires_grad(capture["beta"].value().detach());
  const Tensor one_by_one = path_scores(inputs, w, beta);
  CHECK(distance(logits, one_by_one) < 1e-12);
  const std::vector<Tensor> wanted = grad(sum(one_by_one * cotangent), {}, {inputs.query, inputs.key, w, beta});
  CHECK(distance(found[0], wanted[0]) < 1e-11);
  CHECK(distance(found[1], wanted[1]) < 1e-11);
  CHECK(distance(capture["w"].gradient(), wanted[2]) < 1e-11);
  CHECK(distance(capture["beta"].gradient(), wanted[3]) < 1e-11);
  const Tensor whole = path.output(inputs);
  for (const index_t rows : {1, 40, 64, 149})  // queries that begin anywhere in a block
    CHECK(distance(path.output(inputs, {Executor::strips, rows}), whole) < 1e-12);
}

TEST_CASE("path: mirrors that are all alike stay exact in 32 bits, and 8192 tokens finite") {
  const auto alike = [](index_t length, DType dtype) {  // the same token repeated: the worst case for the inverse
    return AttendInputs{.x = expand(normal({1, 1, 4}, 1, dtype), {1, length, 4}),
        .query = normal({1, 1, length, 4}, 2, dtype),
        .key = normal({1, 1, length, 4}, 3, dtype),
        .value = normal({1, 1, length, 4}, 4, dtype),
        .sequence = Sequence::run(length)};
  };
  const Bare exact("path", 1), path("path", 1);
  for (const Bare* each : {&exact, &path}) each->fill("beta.bias", 9);  // beta is 1.9998
  path.root().to(DType::f32);
  const NoGrad values_only;
  const AttendInputs wide = alike(300, DType::f64);
  const Tensor found = path.output(mapped(wide, rounded_to(DType::f32)));
  CHECK(distance(cast(found, DType::f64), exact.output(wide)) < 1e-3);         // a power series is wrong by over 1e20
  CHECK(largest(path.output(alike(8192, DType::f32), Executor::strips)) < 6);  // at most the largest of the values
}

TEST_CASE("mta: nothing but softmax at first; its rows need earlier queries, so that strips refuse") {
  const AttendInputs inputs = random_inputs(9);
  Bare first("mta");
  first.root().initialise(3);
  CHECK(distance(first.output(inputs), Bare("none").output(inputs)) < 1e-15);
  CHECK(!refusal_of(Executor::strips, first.stages()).empty());
  CHECK(refusal_of(Executor::strips, Bare("mta(queries=1)").stages()).empty());
  CHECK(Bare("mta", 1).root().parameters().size() == 1);  // a single head is not mixed
}

TEST_CASE(
    "forgetting, cable: the gate of a token that a mask hides counts all the same, that of a hidden pair does not") {
  const AttendInputs inputs = random_inputs(9), hidden = without_token_2(inputs);
  for (const char* text : {"forgetting", "cable"})
    CHECK(distance(shown(Bare(text), inputs, "bias"), shown(Bare(text), hidden, "bias")) == 0);
  const Bare pairs("forgetting(gates=pairs)");
  const Tensor lost = shown(pairs, inputs, "bias") - shown(pairs, hidden, "bias");
  const Tensor z = shown(pairs, inputs, "gate_logits");
  for (index_t i = 3; i < 9; ++i) {
    const double log_gate = -std::log1p(std::exp(-z.at({0, 0, i, 2})));
    CHECK(std::fabs(lost.at({0, 0, i, 1}) - log_gate) < 1e-13);
    CHECK(std::fabs(lost.at({0, 0, i, 3})) < 1e-15);
  }
  for (const char* text : {"forgetting", "forgetting(gates=pairs)", "cable"})
    for (const Executor executor : all_executors)
      CHECK(distance(Bare(text).output(hidden, executor), Bare(text).output(hidden)) < 1e-13);
}

TEST_CASE("running sums of 2048 tokens: f32 is as near to f64 as without them, in value and gradients") {
  for (const std::string text : {"forgetting", "cable", "cable(weight=no, step=softplus)",
           "forgetting + cable(weight=no)", "selective_rope", "carope"}) {
    CAPTURE(text);
    Bare exact(text, 1, 4, 2048), rounded(text, 1, 4, 2048);
    for (Bare* each : {&exact, &rounded})
      if (text.ends_with("rope")) each->root().initialise(1);  // random ones would rotate beyond the precision of f32
    for (const Module::Parameter& each : exact.root().parameters())
      raw::copy_into(raw::cast(raw::cast(each.tensor, DType::f32), DType::f64), each.tensor);
    rounded.root().to(DType::f32);
    const AttendInputs inputs = random_inputs(2048, Sequence::run(2048), 1, 1, 4);
    const auto results = [&](const Bare& scheme, DType dtype, const AttendPlan& plan) {
      const AttendInputs of =
          mapped(inputs, [&](const Tensor& x) { return requires_grad(raw::cast(rounded_to(DType::f32)(x), dtype)); });
      const Tensor output = scheme.output(of, plan);
      std::vector<Tensor> all =
          grad(output, raw::cast(normal(output.shape(), 5), dtype), {of.query, of.key, of.value, of.x});
      all.push_back(output.detach());
      return all;
    };
    const std::vector<Tensor> wanted = results(exact, DType::f64, Executor::tiled);
    for (const Executor executor : all_executors) {
      CAPTURE(std::string(name_of(executor)));
      const std::vector<Tensor> found = results(rounded, DType::f32, executor);
      for (std::size_t k = 0; k < found.size(); ++k) {
        const Tensor off = raw::cast(found[k], DType::f64) - wanted[k];
        CAPTURE(k);
        // Plain kernels compiled by clang reach 1.52e-6, running sums in f32 1.2e-5 and more.
        CHECK(std::sqrt(sum(square(off)).item() / sum(square(wanted[k])).item()) < 2.5e-6);
      }
    }
  }
}

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

TEST_CASE("ssmax: padding is not counted, a decoded row counts as in the whole run") {
  const Bare scheme("ssmax");
  scheme.fill("strength", 2);
  const Tensor padded = shown(scheme, random_inputs(7, Sequence::padded(present_but(7, 3, 0)), 2), "factor");
  for (index_t i = 0; i < 7; ++i) {
    CHECK(padded.at({0, 1, i, 0}) == doctest::Approx(2 * std::log(static_cast<double>(i + 1))));
    CHECK(padded.at({1, 1, i, 0}) == doctest::Approx(2 * std::log(std::max<double>(1, static_cast<double>(i) - 2))));
  }
  AttendInputs row = random_inputs(7, Sequence::continued(6, 1, 9));
  row.query = slice(row.query, 2, 6, 7);
  CHECK(shown(scheme, row, "factor").at({0, 0, 0, 0}) == doctest::Approx(2 * std::log(7.0)));
}

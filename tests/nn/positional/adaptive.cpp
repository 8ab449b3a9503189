// Properties of DAPE and CDAPE. Worked numbers: tests/nn/positional/worked/contextual.cpp.
#include <ranges>
#include <set>

#include "autograd/inspect/capture.h"
#include "nn/training/training.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

// Returns the tokens with respect to which row i of the allowed logits has a nonzero gradient.
std::set<index_t> tokens_seen(const Bare& scheme, const AttendInputs& inputs, index_t row) {
  const Tensor logits = select(scheme.logits(inputs), 2, row), loss = sum(logits * normal(logits.shape(), 77));
  std::set<index_t> seen;
  for (const Tensor& found : grad(loss, {}, {inputs.query, inputs.key}, {.allow_unused = true}))
    for (index_t t = 0; found.defined() && t < found.size(2); ++t)
      if (largest(select(found, 2, t)) != 0) seen.insert(t);
  return seen;
}

std::set<index_t> up_to(index_t last) {
  const auto all = std::views::iota(index_t{0}, last + 1);
  return {all.begin(), all.end()};
}

}  // namespace

// DAPE, section 3: "DAPE can realize classical additive RPEs (e.g., Alibi and Kerple)". A hidden unit for each distance
// reads n = -B / m of ALiBi's first head, whose slope is m. The slope of f between n and n + 1 is then
// 0.99 (w_0 + ... + w_n) + 0.01 (w_0 + ... + w_last), because a unit that reads less than its distance passes a hundredth.
TEST_CASE(
    "adaptive: by weights set by hand DAPE's network is ALiBi with another slope in one head, and KERPLE in the "
    "other") {
  constexpr index_t length = 12, last = length - 2;
  const AttendInputs inputs = random_inputs(length);
  const Bare plain("none"), base("alibi"), kerple("kerple"),
      dape(to_text("dape(alibi, form=concat, width=", last + 1, ")"));
  const double m = -(base.logits(inputs) - plain.logits(inputs)).at({0, 0, 1, 0});
  const Tensor wanted = kerple.logits(inputs) - plain.logits(inputs);  // of KERPLE; another slope of ALiBi: 0.3
  const auto bias = [&](index_t h, index_t n) {
    return h == 0 ? -0.3 * static_cast<double>(n) : wanted.at({0, 1, n, 0});
  };
  const Tensor in = Tensor::zeros({last + 1, 4}, DType::f64), at = Tensor::zeros({last + 1}, DType::f64),
               out = Tensor::zeros({2, last + 1}, DType::f64), start = Tensor::zeros({2}, DType::f64);
  for (index_t n = 0; n <= last; ++n)
    in.data<double>()[4 * n + 2] = -1 / m, at.data<double>()[n] = -static_cast<double>(n);
  for (index_t h = 0; h < 2; ++h) {
    const auto slope = [&](index_t n) { return bias(h, n + 1) - bias(h, n); };
    for (index_t n = 0; n <= last; ++n) {
      const double w = n == 0 ? slope(last) - (slope(last) - slope(0)) / 0.99 : (slope(n) - slope(n - 1)) / 0.99;
      out.data<double>()[h * (last + 1) + n] = w, start.data<double>()[h] += 0.01 * w * static_cast<double>(n);
    }
  }
  dape.set("hidden.weight", in), dape.set("hidden.bias", at), dape.set("output.weight", out),
      dape.set("output.bias", start);
  const Tensor apart = inputs.sequence.masked(dape.logits(inputs) - plain.logits(inputs));
  for (index_t i = 0; i < length; ++i)
    for (index_t j = 0; j <= i; ++j)
      for (index_t h = 0; h < 2; ++h) CHECK(apart.at({0, h, i, j}) == doctest::Approx(bias(h, i - j)).epsilon(1e-9));
}

TEST_CASE("adaptive: decoding without tril is refused, as rows would need keys that are yet to come") {
  const auto leaking = random_decoder(small("cdape(alibi, width=3, tril=no)"));
  Decoding decoding(*leaking, 12);
  CHECK(has(error_text([&] { (void)decoding(random_tokens(1, 3, 5)); }), "tril=no in"));
}

TEST_CASE("adaptive: a longer run leaves rows of faithful CDAPE as they were, but the last k/2") {
  const AttendInputs longer = random_inputs(12);
  AttendInputs first = random_inputs(8);
  first.query = slice(longer.query, 2, 0, 8), first.key = slice(longer.key, 2, 0, 8);
  index_t reach = 0;
  for (const std::string text :
      {"cdape(kerple, width=3)", "cdape(rope, width=3, kernel=5)", "cdape(none, width=3, kernel=7)"}) {
    CAPTURE(text);
    const Bare scheme(text);
    ++reach;
    const Tensor apart = scheme.logits(first) - slice(slice(scheme.logits(longer), 2, 0, 8), 3, 0, 8);
    for (index_t row = 0; row < 8; ++row) CHECK((largest(select(apart, 2, row)) < 1e-13) == (row < 8 - reach));
    CHECK(!scheme.claims().prefix_consistent);
  }
}

TEST_CASE("adaptive: a bidirectional CDAPE sees all keys, or the lower triangle alone on request") {
  const AttendInputs causal = random_inputs(9);
  AttendInputs open = causal;
  open.sequence = Sequence::run(9, false);
  const Bare one("cdape(none, width=3)"), always("cdape(none, width=3, tril=always)");
  const Tensor triangle = one.logits(causal);
  CHECK(distance(masked(always.logits(open), causal.sequence.mask()).detach(), triangle.detach()) < 1e-13);
  CHECK(distance(always.logits(causal).detach(), triangle.detach()) == 0);  // as in causal models
  CHECK(distance(masked(one.logits(open), causal.sequence.mask()).detach(), triangle.detach()) > 0.01);
  CHECK(tokens_seen(one, open, 4) == up_to(8));
}

TEST_CASE("adaptive: without tril a row of CDAPE sees the next k - 1 keys and none behind them") {
  const AttendInputs inputs = random_inputs(12);
  for (const index_t k : {3, 5, 7}) {
    CAPTURE(k);
    const Bare leaking(to_text("cdape(alibi, width=3, kernel=", k, ", tril=no)"));
    for (const index_t row : {0, 4}) CHECK(tokens_seen(leaking, inputs, row) == up_to(row + k - 1));
    CHECK(!parse_schemes(to_text("cdape(alibi, kernel=", k, ", tril=no)"))[0].make({8, 2, 9})->claims().sees_no_future);
  }
}

TEST_CASE("adaptive: without tril every base's bias above the diagonal is that of distance 0") {
  const AttendInputs inputs = random_inputs(6);
  for (const std::string base : {"alibi", "kerple", "kerple(form=power)", "sandwich(dim=8)", "fire(width=3)",
           "t5(buckets=4, max_distance=6)", "relative(rows=3)", "forgetting", "interpolated(alibi, factor=3)"}) {
    CAPTURE(base);
    const Capture capture("*conv_in");
    (void)Bare("cdape(" + base + ", tril=no)").output(inputs);
    const Tensor x = capture[capture.names().at(0)].value();  // S, then B: [1 4 i j]
    for (index_t h = 2; h < 4; ++h) {
      for (index_t i = 0; i < 6; ++i)
        for (index_t j = i + 1; j < 6; ++j) CHECK(x.at({0, h, i, j}) == x.at({0, h, i, i}));
      CHECK(x.at({0, h, 5, 0}) != x.at({0, h, 5, 5}));
    }
  }
}

TEST_CASE("adaptive: CDAPE refuses a mask per head, DAPE takes one") {
  AttendInputs inputs = random_inputs(5);
  inputs.sequence.given_mask = raw::copy(raw::expand(inputs.sequence.mask(), {1, 2, 5, 5}));
  CHECK_THROWS_WITH_AS((void)Bare("cdape(alibi)").output(inputs), doctest::Contains("heads, [1|b 1"), InputError);
  CHECK(distance(Bare("dape(alibi)").output(inputs).detach(), Bare("dape(alibi)").output(random_inputs(5)).detach()) ==
        0);
}

TEST_CASE("adaptive: in a sum, f reads the bias of its own base alone") {
  const AttendInputs inputs = random_inputs(9);
  for (const std::string name : {"dape", "cdape"}) {
    const Bare alone(name + "(alibi, width=3)"), beside(name + "(alibi, width=3) + sandwich"), bias("sandwich"),
        none("none");
    for (const char* part : {"hidden.weight", "hidden.bias", "output.weight", "output.bias"})
      beside.set(part, alone[part]);
    const Tensor expected = alone.logits(inputs) + bias.logits(inputs) - none.logits(inputs);
    CHECK(distance(beside.logits(inputs).detach(), expected.detach()) < 1e-13);
  }
}

TEST_CASE("adaptive: DAPE's parameters start as PyTorch's layers do") {
  const auto init_of = [](const std::string& text, const std::string& ending) {
    const auto scheme = parse_schemes(text)[0].make({8, 2, 9});
    for (const Module::Parameter& parameter : scheme->parameters())
      if (parameter.path == ending) return parameter.init.text();
    return std::string("no such parameter");
  };
  CHECK(init_of("dape(alibi)", "hidden.weight") == Init::fan_in(4).text());
  CHECK(init_of("dape(alibi, form=add_residual)", "hidden.bias") == Init::fan_in(2).text());
  CHECK(init_of("dape(none)", "hidden.weight") == Init::fan_in(2).text());
  CHECK(init_of("dape(none)", "output.bias") == Init::fan_in(32).text());
  CHECK(init_of("cdape(alibi)", "hidden.weight") == Init::fan_in(12).text());
  CHECK(init_of("cdape(rope, kernel=5)", "hidden.bias") == Init::fan_in(10).text());
  CHECK(init_of("cdape(rope, kernel=5, width=3)", "output.weight") == Init::fan_in(15).text());
  CHECK(init_of("cope_mlp", "hidden.weight") == Init::fan_in(1).text());
  CHECK(init_of("cope_mlp", "output.weight") == Init::fan_in(64).text());
}

TEST_CASE("adaptive: what would have no effect or no meaning is refused, with a reason") {
  const auto refused = [](const std::string& text) { return error_text([&] { (void)Bare(text); }); };
  const auto says = [&](const std::string& text, const std::string& part) {
    CHECK_MESSAGE(refused(text).find(part) != std::string::npos, text << " says: " << refused(text));
  };
  says("dape(cope)", "the scheme inside transforms scores");
  says("dape(absolute)", "the scheme inside embeds tokens");
  says("dape(dape(alibi))", "the scheme inside maps scores itself");
  says("cdape(hard_attention)", "the scheme inside stands for the softmax");
  says("cdape(shaw)", "the scheme inside adds to the values");
  says("dape(none, form=concat)", "over a base without a bias");
  says("dape(rope, form=f_of_bias)", "over a base without a bias");
  says("cdape(alibi, kernel=2)", "an odd kernel required, or pad=left");
  says("cdape(alibi, kernel=1, pad=left)", "with kernel=1");
  says("cdape(alibi, kernel=1, remask=yes)", "with kernel=1");
  says("cdape(alibi, kernel=1, tril=no)", "with kernel=1");
  says("cdape(alibi, pad=left, tril=no)", "with pad=left");
  says("cdape(alibi, pad=left, remask=yes)", "with pad=left");
  says("cdape(alibi, tril=no, remask=yes)", "with tril=no");
}

namespace {

// Returns the mean loss, in nats, of the last steps on random tokens.
double loss_on_noise(const std::string& scheme) {
  TransformerOptions options = small(scheme);
  options.vocabulary = 4, options.dim = 16, options.length = 16;
  Transformer model(options);
  model.initialise(1);
  MixedPrecision precision(model, DType::f32, {});
  const MakeBatch make = [](std::int64_t part) {  // new tokens in every step, so that nothing can be memorised
    const Tensor tokens = random_tokens(32, 17, 4, static_cast<std::uint64_t>(part));
    return TrainingBatch{{contiguous(slice(tokens, 1, 0, 16)), contiguous(slice(tokens, 1, 1, 17))}, 32 * 16, 32 * 16};
  };
  const LossOf loss_of = [&](const TrainingBatch& batch, std::int64_t) {
    return cross_entropy_sum(model(batch.tensors[0], {.training = true}), batch.tensors[1]);
  };
  TrainingStep step(precision, make, loss_of);
  double last = 0;
  for (std::int64_t n = 1; n <= 300; ++n) {
    const double loss = step.take(n, 1e-2).loss;
    if (n > 290) last += loss / 10;
  }
  return last;
}

}  // namespace

TEST_CASE("adaptive: without tril the answers leak: training gets below what can be known, with it never") {
  const double unknown = std::log(4);
  CHECK(loss_on_noise("cdape(kerple)") > 0.98 * unknown);
  CHECK(loss_on_noise("cdape(kerple, tril=no)") < 0.75 * unknown);
  // The leak in a whole model: a later token changes the rows of k - 1 = 2 tokens before it per layer, and none with
  // tril.
  for (const bool leaks : {false, true}) {
    const auto model = random_decoder(small(leaks ? "cdape(kerple, tril=no)" : "cdape(kerple)"));
    const Tensor tokens = Tensor::of({1, 2, 3, 4, 0, 1, 2, 3, 4}, {1, 9}, DType::i64),
                 other = Tensor::of({1, 2, 3, 4, 0, 1, 2, 0, 4}, {1, 9}, DType::i64);
    const Tensor moved = ((*model)(tokens) - (*model)(other)).detach();
    for (index_t row = 0; row < 7; ++row)
      CHECK((largest(slice(moved, 1, row, row + 1)) > 0) == (leaks && row >= 7 - 2 * 2));
  }
}

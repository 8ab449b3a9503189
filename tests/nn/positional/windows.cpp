// Properties of windows and scaled rotations. Worked numbers: tests/nn/positional/worked/later.cpp.
#include <cmath>
#include <numbers>

#include "nn/attention/plan.h"
#include "nn/scheme.h"
#include "tests/support/json.h"
#include "tests/support/programs.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

struct Rotated {
  std::vector<double> theta, magnitude;  // of each pair
};

Rotated rotation_of(const std::string& text, index_t head_dim, index_t tokens) {
  const auto scheme = parse_schemes(text)[0].make({head_dim, 1, tokens});
  const index_t pairs = head_dim / 2;
  Tensor q = Tensor::zeros({1, 1, 1, head_dim}, DType::f64);
  for (index_t m = 0; m < pairs; ++m) q.data<double>()[m] = 1;
  Tensor k = q;
  AttendContext context;
  static_cast<Sequence&>(context) = Sequence::run(tokens);
  context.positions.query = Tensor::ones({1}, DType::f64);
  context.positions.tokens = {tokens};
  context.positions.key = context.positions.query;
  const Stages stages = Stages::of({scheme.get()});
  stages.rotates.at(0).scheme->rotate(q, k, stages.rotates.at(0).at(context));
  Rotated found;
  for (index_t m = 0; m < pairs; ++m) {
    const double cosine = q.data<double>()[m], sine = q.data<double>()[m + pairs];
    found.theta.push_back(std::atan2(sine, cosine));
    found.magnitude.push_back(std::hypot(sine, cosine));
  }
  return found;
}

std::vector<std::string> paths_with(const Module& module, const std::string& part) {
  std::vector<std::string> paths;
  for (const Module::Parameter& each : module.parameters())
    if (each.path.find(part) != std::string::npos) paths.push_back(each.path);
  return paths;
}

// bool [1 1 t t]: |i - j| < n
Tensor band(index_t length, index_t n) {
  const Tensor mask = Tensor::empty({1, 1, length, length}, DType::boolean);
  for (index_t i = 0; i < length; ++i)
    for (index_t j = 0; j < length; ++j) mask.data<bool>()[i * length + j] = std::abs(i - j) < n;
  return mask;
}

}  // namespace

TEST_CASE("rope: speeds and magnitudes of every scaling are those of transformers' configurations") {
  const auto worked = json_of(text_of(source_folder() + "/tests/nn/positional/worked/later.json"));
  REQUIRE(worked.at("rotations").size() == 10);
  for (const auto& each : worked.at("rotations")) {
    const std::string text = each.at("scheme");
    CAPTURE(text);
    const auto theta = each.at("theta").get<std::vector<double>>();
    const Rotated ours = rotation_of(text, each.at("head dim"), each.at("tokens"));
    REQUIRE(ours.theta.size() == theta.size());
    for (std::size_t m = 0; m < theta.size(); ++m) {
      CHECK(std::fabs(ours.theta[m] - theta[m]) <= 1e-14 + 1e-12 * theta[m]);
      CHECK(ours.magnitude[m] == doctest::Approx(each.at("magnitude").get<double>()).epsilon(1e-14));
    }
  }
}

TEST_CASE("rope: dynamic scaling says that its rows depend on the length of the run, llama3's does not") {
  CHECK(!parse_schemes("rope(scaling=dynamic)")[0].make({8, 2, 9})->claims().prefix_consistent);
  CHECK(parse_schemes("rope(scaling=llama3)")[0].make({8, 2, 9})->claims().prefix_consistent);
}

TEST_CASE("rope: dropped pairs do not rotate, at any distance, and lengths of lists and shares are checked") {
  const Rotated kept = rotation_of("rope(keep=0.3)", 16, 8), plain = rotation_of("rope", 16, 8);
  for (std::size_t m = 0; m < 8; ++m) CHECK(kept.theta[m] == (m < 2 ? plain.theta[m] : 0));
  const AttendInputs inputs = random_inputs(9);
  CHECK(distance(Bare("rope(keep=1)").logits(inputs), Bare("rope").logits(inputs)) == 0);
  const auto refused = [](const std::string& text, const std::string& reason) {
    const std::string said = error_text([&] { (void)Bare(text, 2, 8); });
    CHECK_MESSAGE(said.find(reason) != std::string::npos, text << " says: " << said);
  };
  refused("rope(keep=0.2, scaling=ntk)", "no effect where no pair rotates");
  refused("rope(factor=2)", "it has no effect without a scaling");
  refused("rope(scaling=ntk, original=8)", "original given; it has no effect");
  refused("rope(scaling=ntk, low_freq_factor=2)", "without scaling=llama3");
  refused("rope(scaling=llama3, long_factor=2)", "without scaling=longrope");
  refused("rope(scaling=llama3, low_freq_factor=4)", "low < high required");
  refused("rope(scaling=longrope, short_factor=1:2:3)", "short_factor of 3 numbers for 4 pairs given");
  refused("rope(scaling=longrope, original=1)", "2 or more required");
}

TEST_CASE("layers: parameters are in those layers alone, every fourth has none, and two share the layers out") {
  const auto model = [](const std::string& scheme) {
    TransformerOptions options = small(scheme);
    options.layers = 5;
    return random_decoder(options);
  };
  const auto layers_of = [&](const std::string& scheme, const std::string& parameter) {
    std::string found;
    for (const std::string& path : paths_with(*model(scheme), parameter)) found += path[7];  // blocks.N
    return found;
  };
  CHECK(layers_of("layers(cope, count=1)", "position.table") == "0");
  CHECK(layers_of("layers(cope, every=2)", "position.table") == "024");
  CHECK(layers_of("layers(cope, every=2, count=2)", "position.table") == "02");
  CHECK(layers_of("layers(cope, every=4, from=3, which=others)", "position.table") == "0124");
  const std::string both = "layers(cope, every=2) + layers(kerple, every=2, from=1)";
  CHECK(layers_of(both, "position.cope.table") == "024");
  CHECK(layers_of(both, "position.kerple.strength") == "13");
  CHECK(has(error_text([&] { (void)model("layers(rope, count=2) + layers(rope(base=5), from=1)"); }), "in layer 1"));
  CHECK(has(error_text([&] { (void)model("layers(absolute)"); }), "all layers"));
  CHECK(has(error_text([&] {
    (void)Transformer({.vocabulary = 5,
        .length = 4,
        .dim = 8,
        .layers = 2,
        .heads = 2,
        .scheme = "layers(cope, from=1)",
        .causal = false});
  }),
      "no meaning"));
  // Decoded token by token, a hybrid's rows are those of the full pass.
  const auto hybrid = model(both);
  const Tensor tokens = random_tokens(1, 7, 5), whole = (*hybrid)(tokens);
  Decoding decoding(*hybrid, 7);
  for (index_t t = 0; t < 7; ++t)
    CHECK(distance(decoding(raw::slice(tokens, 1, t, t + 1)), slice(whole, 1, t, t + 1).detach()) < 1e-12);
}

TEST_CASE("window: equal to a mask of the caller, by every executor, with and without a causal mask") {
  for (const char* scheme : {"none", "rope", "kerple", "shaw", "fire", "forgetting", "cope(p_max=3)", "dape(kerple)",
           "cdape(kerple)", "hard_attention", "cope_alibi"})
    for (const bool causal : {true, false})
      for (const index_t n : {1, 4, 100}) {
        CAPTURE(scheme);
        CAPTURE(causal);
        CAPTURE(n);
        const Bare inside(scheme), windowed(to_text("window(", scheme, ", n=", n, ")"));
        if (inside.claims().causal_only && !causal) continue;
        for (const Module::Parameter& each : inside.root().parameters()) windowed.set(each.path, each.tensor);
        const AttendInputs inputs = random_inputs(150, Sequence::run(150, causal));
        AttendInputs masked = inputs;
        masked.sequence.given_mask = band(150, n);
        const Tensor wanted = inside.output(masked);
        const std::vector<Tensor> leaves{inputs.x, inputs.query, inputs.key, inputs.value};
        const auto gradients = [&](const Tensor& y) {
          return grad(sum(y * normal(y.shape(), 9)), {}, leaves, {.allow_unused = true});
        };
        const std::vector<Tensor> wanted_gradients = gradients(wanted);
        for (const Executor executor : all_executors) {
          CAPTURE(name_of(executor));
          if (!refusal_of(executor, windowed.stages()).empty()) continue;
          const Tensor output = windowed.output(inputs, executor);
          CHECK(distance(output.detach(), wanted.detach()) < 1e-12);
          const std::vector<Tensor> found = gradients(output);
          for (std::size_t k = 0; k < found.size(); ++k)
            if (found[k].defined() && wanted_gradients[k].defined())  // unread x has no gradient, or zeros
              CHECK(distance(found[k], wanted_gradients[k]) < 1e-12);
        }
      }
}

TEST_CASE(
    "window: strips draw what the whole drops; of two windows the narrower counts; layers reach (n - 1) further") {
  AttendInputs inputs = random_inputs(21);
  inputs.dropout = PatternDropout{0.4, Stream(3, "pattern")};
  const Bare scheme("window(alibi, n=6)");
  CHECK(distance(scheme.output(inputs, {Executor::strips, 4}).detach(), scheme.output(inputs).detach()) < 1e-13);
  inputs.dropout.reset();
  const Tensor narrow = Bare("window(window(rope, n=9), n=3)").output(inputs).detach();
  CHECK(distance(Bare("window(window(rope, n=3), n=9)").output(inputs).detach(), narrow) == 0);
  CHECK(distance(Bare("window(rope, n=3)").output(inputs).detach(), narrow) == 0);
  const auto model = random_decoder(small("window(rope, n=3)"));  // two layers: a token sees 4 back
  const Tensor tokens = random_tokens(1, 9, 5);
  const auto last_row = [&](index_t changed) {
    Tensor other = raw::copy(tokens);
    other.data<index_t>()[changed] = (other.data<index_t>()[changed] + 1) % 5;
    return slice((*model)(other), 1, 8, 9).detach();
  };
  const Tensor row = slice((*model)(tokens), 1, 8, 9).detach();
  CHECK(distance(last_row(3), row) == 0);
  CHECK(distance(last_row(4), row) > 1e-9);
}

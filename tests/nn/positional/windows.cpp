// Properties of windows, and of schemes in some of the layers.
#include "nn/attention/plan.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

TEST_CASE("layers: parameters are in those layers alone, every fourth has none, and two share the layers out") {
  const auto model = [](const std::string& scheme) {
    TransformerOptions options = small(scheme);
    options.layers = 5;
    return random_decoder(options);
  };
  const std::string both = "layers(cope, every=2) + layers(kerple, every=2, from=1)";
  const std::string rows[][3] = {{"layers(cope, count=1)", "position.table", "0"},
      {"layers(cope, every=2)", "position.table", "024"}, {"layers(cope, every=2, count=2)", "position.table", "02"},
      {"layers(cope, every=4, from=3, which=others)", "position.table", "0124"}, {both, "position.cope.table", "024"},
      {both, "position.kerple.strength", "13"}};
  for (const auto& [scheme, parameter, layers] : rows) {
    std::string found;
    for (const std::string& path : paths_of(*model(scheme)))
      if (path.ends_with(parameter)) found += path[7];  // blocks.N
    CHECK_MESSAGE(found == layers, scheme);
  }
  CHECK(has(error_text([&] { (void)model("layers(rope, count=2) + layers(rope(base=5), from=1)"); }), "layer 1"));
  CHECK(has(error_text([&] { (void)model("layers(absolute)"); }), "all layers"));
  TransformerOptions open = small("layers(cope, from=1)");
  open.causal = false;
  CHECK(has(error_text([&] { (void)random_decoder(open); }), "no meaning"));
}

TEST_CASE("window: equal to a mask of the caller, by every executor, with and without a causal mask") {
  for (const char* scheme : {"none", "rope", "kerple", "shaw", "fire", "forgetting", "cope(p_max=3)", "dape(kerple)",
           "cdape(kerple)", "hard_attention", "cope_alibi"})
    for (const bool causal : {true, false})
      for (const index_t n : {1, 4, 100}) {
        INFO(scheme, ", causal ", causal, ", n ", n);
        const Bare inside(scheme), windowed(to_text("window(", scheme, ", n=", n, ")"));
        if (inside.claims().causal_only && !causal) continue;
        for (const Module::Parameter& each : inside.root().parameters()) windowed.set(each.path, each.tensor);
        const AttendInputs inputs = random_inputs(150, Sequence::run(150, causal));
        AttendInputs masked = inputs;
        const Tensor band = masked.sequence.given_mask = Tensor::empty({1, 1, 150, 150}, DType::boolean);
        for (index_t p = 0; p < band.numel(); ++p) band.data<bool>()[p] = std::abs(p / 150 - p % 150) < n;
        const std::vector<Tensor> leaves{inputs.x, inputs.query, inputs.key, inputs.value};
        const auto results = [&](const Tensor& y) {
          std::vector<Tensor> all = grad(sum(y * normal(y.shape(), 9)), {}, leaves, {.allow_unused = true});
          all.push_back(y.detach());
          return all;
        };
        const std::vector<Tensor> wanted = results(inside.output(masked));
        for (const Executor executor : all_executors) {
          CAPTURE(name_of(executor));
          if (!refusal_of(executor, windowed.stages()).empty()) continue;
          const std::vector<Tensor> found = results(windowed.output(inputs, executor));
          for (std::size_t k = 0; k < found.size(); ++k)
            if (found[k].defined() && wanted[k].defined())  // unread x has no gradient, or zeros
              CHECK(distance(found[k], wanted[k]) < 1e-12);
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
  const Tensor narrow = Bare("window(rope, n=3)").output(inputs).detach();
  for (const char* text : {"window(window(rope, n=9), n=3)", "window(window(rope, n=3), n=9)"})
    CHECK(distance(Bare(text).output(inputs).detach(), narrow) == 0);
  const auto model = random_decoder(small("window(rope, n=3)"));  // two layers: a token sees 4 back
  const Tensor tokens = random_tokens(1, 9, 5), row = slice((*model)(tokens), 1, 8, 9).detach();
  for (const index_t changed : {3, 4}) {
    const Tensor other = raw::copy(tokens);
    other.data<index_t>()[changed] = (other.data<index_t>()[changed] + 1) % 5;
    CHECK((distance(slice((*model)(other), 1, 8, 9).detach(), row) > 1e-9) == (changed == 4));
  }
}

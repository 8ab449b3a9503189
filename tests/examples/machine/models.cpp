// The named models: parameter counts computed by hand, their parts, and a training step of each kind of block.
#include "examples/whence/machine/models.h"

#include "autograd/check/gradcheck.h"
#include "nn/attention/plan.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

index_t count(const std::string& name, const std::string& scheme = {}) {
  return Transformer(named_model(name, scheme)).parameter_count();
}

TransformerOptions shrunk(const std::string& name) {
  TransformerOptions options = named_model(name);
  options.vocabulary = 7, options.length = 9, options.dim = 8, options.layers = 2, options.heads = 2,
  options.hidden = 12, options.kv_heads = options.kv_heads ? 1 : 0;
  return options;
}

}  // namespace

TEST_CASE("parameter counts of the papers' models") {
  // GPT-2: 50257 x 768 + 1024 x 768 + 12 (4 x 768 x 768 + 4 x 768 + 2 x 4 x 768 x 768 + 5 x 768 + 4 x 768) + 2 x 768
  CHECK(count("gpt2-124m") == 124439808);
  CHECK(count("gpt2-124m", "none") == 123653376);
  CHECK(count("gpt2-124m", "cope(p_max=64, table=shared)") == 123653376 + 65 * 64);  // the paper's 123.7 M
  CHECK(count("llama-20m") == 2 * 32000 * 256 + 4 * (4 * 256 * 256 + 3 * 256 * 768 + 2 * 256) + 256);  // 19.8 M
  CHECK(count("smollm2-135m") == 134515008);  // as its publishers count
  CHECK(count("neox-125m") == 2 * 50304 * 768 + 12 * (12 * 768 * 768 + 13 * 768) + 2 * 768);
  CHECK(count("che") == 2 * 12 * 256 + 5 * (12 * 256 * 256 + 5 * 256 + 4 * 256));
}

TEST_CASE("an encoder refuses schemes that need a causal mask, and decoding") {
  TransformerOptions options = shrunk("che");
  const Transformer encoder(options);
  CHECK(has(message([&] { const Decoding decoding(encoder, 8); }), "not causal"));
  options.scheme = "cope(p_max=4)";
  CHECK(has(message([&] { const Transformer model(options); }), "transformer: cope(p_max=4)"));
}

TEST_CASE("every named model trains: a gradient at every parameter, and right ones") {
  for (const NamedModel& named : named_models()) {
    CAPTURE(named.name);
    TransformerOptions options = shrunk(named.name);
    options.dropout = options.pattern_dropout = options.hidden_dropout = 0;
    Transformer model(options);
    randomise(model);
    const Tensor tokens = random_tokens(2, 5, options.vocabulary);
    const auto loss = [&] { return cross_entropy(model(tokens), tokens); };
    for (const Tensor& gradient : grad(loss(), {}, parameters_of(model), {.allow_unused = true}))
      CHECK(gradient.defined());
    std::vector<Named> parameters;
    for (const Module::Parameter& each : model.parameters()) parameters.push_back({each.path, each.tensor});
    const GradcheckReport report = gradcheck(loss, parameters, {.dual_tolerance = 1e-11, .one_by_one = 0});
    CHECK_MESSAGE(report.ok(), report.text());
  }
}

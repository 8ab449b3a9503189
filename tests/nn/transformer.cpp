// The decoder: its equations, gradients of every parameter, threads, names, padding, refusals.
#include "nn/transformer.h"

#include "autograd/check/gradcheck.h"
#include "autograd/inspect/capture.h"
#include "autograd/inspect/graph_text.h"
#include "nn/decoding.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

Tensor gradients_of_a_step(const Transformer& model, const Tensor& tokens, const Tensor& targets, const Pass& pass) {
  std::vector<Tensor> parts;
  const Tensor loss = cross_entropy(model(tokens, pass), targets);
  for (const Tensor& dx : grad(loss, {}, parameters_of(model), {.allow_unused = true}))
    if (dx.defined()) parts.push_back(reshape(dx, {-1}));
  parts.push_back(reshape(loss.detach(), {1}));
  return concat_along(0, parts);
}

// The decoder of scheme none from its parameters, head by head: norms before as in GPT-2, or after.
Tensor plain_decoder(const Transformer& model, const Tensor& tokens, const Pass& pass) {
  const TransformerOptions& options = model.options();
  const bool after = options.norm_place == NormPlace::after;
  const auto at = [&](const std::string& path) { return parameter(model, path).detach(); };
  const auto project = [&](const Tensor& x, const std::string& path) {
    return linear(x, at(path + ".weight"), at(path + ".bias"));
  };
  const auto norm = [&](const Tensor& x, const std::string& path) {
    return layer_norm(x, at(path + ".weight"), at(path + ".bias"));
  };
  const auto drop = [&](const Tensor& x, const std::string& path) {
    return pass.training ? dropout(x, options.dropout, Stream(pass.seed, path, pass.step)) : x;
  };
  const index_t width = options.dim / options.heads, length = tokens.size(1);
  const Tensor mask = reshape(Sequence::run(length).mask(), {1, length, length});
  Tensor x = drop(take_rows(at("embedding.weight"), tokens), "dropout");
  for (index_t layer = 0; layer < options.layers; ++layer) {
    const std::string block = to_text("blocks.", layer), attention = block + ".attention";
    const Tensor seen = after ? x : norm(x, block + ".norm1");
    std::vector<Tensor> mixed;
    for (index_t h = 0; h < options.heads; ++h) {
      const auto of_head = [&](const char* name) {
        return slice(project(seen, attention + name), 2, h * width, (h + 1) * width);
      };
      const Tensor scores =
          matmul(of_head(".query"), transpose(of_head(".key")), 1 / std::sqrt(static_cast<double>(width)));
      mixed.push_back(matmul(softmax(scores, mask), of_head(".value")));
    }
    x = x + drop(project(concat_along(2, mixed), attention + ".output"), attention + ".dropout");
    if (after) x = norm(x, block + ".norm1");
    const Tensor hidden = gelu(project(after ? x : norm(x, block + ".norm2"), block + ".mlp.in"));
    x = x + drop(project(hidden, block + ".mlp.out"), block + ".dropout");
    if (after) x = norm(x, block + ".norm2");
  }
  return linear(after ? x : norm(x, "norm"), at("embedding.weight"), {});
}

}  // namespace

TEST_CASE("the decoder is what its equations say, in training and out of it") {
  TransformerOptions options = small("none");
  options.dropout = 0.3;
  const Tensor tokens = random_tokens(2, 9, 5);
  for (const NormPlace place : {NormPlace::before, NormPlace::after}) {
    options.norm_place = place;
    const auto model = random_decoder(options);
    for (const bool training : {false, true}) {
      const Pass pass{.training = training, .seed = 3, .step = 4};
      CHECK(distance((*model)(tokens, pass), plain_decoder(*model, tokens, pass)) < 1e-12);
    }
  }
}

TEST_CASE("gradcheck of the whole decoder by every parameter") {
  for (const std::string text : {"absolute", "cope(p_max=2) + rope", "cdape(kerple, width=3)"}) {
    CAPTURE(text);
    for (const index_t layers : {1, 2}) {
      TransformerOptions options = small(text);
      options.length = 5, options.layers = layers;
      options.tied = layers == 1;
      const auto model = random_decoder(options);
      const Tensor tokens = random_tokens(2, 5, 5, 1), targets = random_tokens(2, 5, 5, 2);
      std::vector<Named> leaves;
      for (const Module::Parameter& each : model->parameters()) leaves.push_back({each.path, each.tensor});
      const GradcheckReport report = gradcheck([&] { return cross_entropy((*model)(tokens), targets); }, leaves,
          {.dual_tolerance = 1e-11, .difference_tolerance = 1e-5, .one_by_one = 16});
      CHECK_MESSAGE(report.ok(), report.text());
    }
  }
}

TEST_CASE("a training step has the same bits on 1, 2 and 3 threads, and again") {
  for (const std::string text : {"cope", "absolute", "alibi + rope", "cope(p_max=16, gates=separate_keys)"}) {
    TransformerOptions options = small(text);
    options.vocabulary = 19, options.length = 48, options.dim = 64, options.heads = 4, options.hidden = 0,
    options.dropout = 0.1;
    const auto model = random_decoder(options, DType::f32);
    const Tensor tokens = random_tokens(4, 48, 19, 1), targets = random_tokens(4, 48, 19, 2);
    const Pass pass{.training = true, .seed = 3, .step = 5};
    const auto step = [&] { return gradients_of_a_step(*model, tokens, targets, pass); };
    CHECK(same_bits(step(), step()));
    expect_thread_independent(text, step);
  }
}

TEST_CASE("a model that computes its layers again: the same loss and gradients, to the bit") {
  TransformerOptions options{.vocabulary = 11,
      .length = 24,
      .dim = 16,
      .layers = 3,
      .heads = 2,
      .dropout = 0.2,
      .pattern_dropout = 0.1,
      .hidden_dropout = 0.1};
  const Tensor tokens = random_tokens(2, 24, 11), targets = random_tokens(2, 24, 11, 2);
  const Pass pass{.training = true, .seed = 5, .step = 7};
  for (const char* scheme : {"cope + rope", "t5", "absolute + dape(kerple)", "transformer_xl", "cdape(fire)"}) {
    for (const char* executor : {"auto", "strips"}) {
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        options.scheme = scheme, options.executor = executor, options.recompute_layers = false;
        if (std::string(scheme) == "cdape(fire)" && std::string(executor) == "strips") continue;  // refused
        CAPTURE(scheme);
        CAPTURE(dtype);
        const auto plain = random_decoder(options, dtype);
        options.recompute_layers = true;
        const auto again = random_decoder(options, dtype);
        const auto step = [&](const Transformer& model) {
          const Tensor loss = cross_entropy(model(tokens, pass), targets);
          std::vector<Tensor> all = grad(loss, {}, parameters_of(model), {.allow_unused = true});
          all.push_back(loss);
          return all;
        };
        CHECK(same_bits(step(*again), step(*plain)));
        const Capture capture("blocks.1.*");  // is kept, and is compared below
        const Tensor loss = cross_entropy((*again)(tokens, pass), targets);
        CHECK(to_dot(loss).find("recompute") != std::string::npos);
        backward(loss);
        const Tensor seen = capture["blocks.1.attention.q"].gradient();
        const Capture other("blocks.1.*");
        backward(cross_entropy((*plain)(tokens, pass), targets));
        CHECK(same_bits(seen, other["blocks.1.attention.q"].gradient()));
        for (const auto& [a, b] : {std::pair{"blocks.0.mlp.in.weight", "embedding.weight"}})
          for (const char* path : {a, b})
            CHECK(same_bits(gradient(parameter(*again, path)), gradient(parameter(*plain, path))));
      }
    }
  }
}

TEST_CASE("parameter paths") {
  TransformerOptions options = small("cope");
  options.layers = 1;
  std::vector<std::string> expected{"embedding.weight"};
  const auto add = [&](const std::string& path, std::initializer_list<const char*> names) {
    for (const char* name : names) expected.push_back(path + "." + name);
  };
  const auto block = [&](const std::string& path, std::initializer_list<const char*> of_position) {
    add(path + ".norm1", {"weight", "bias"});
    for (const char* name : {"query", "key", "value", "output"}) add(path + ".attention." + name, {"weight", "bias"});
    add(path + ".attention.position", of_position);
    add(path + ".norm2", {"weight", "bias"});
    add(path + ".mlp.in", {"weight", "bias"});
    add(path + ".mlp.out", {"weight", "bias"});
  };
  block("blocks.0", {"table"});
  add("norm", {"weight", "bias"});
  CHECK(paths_of(Transformer(options)) == expected);

  options.scheme = "absolute + cope(gates=separate_keys) + rope", options.layers = 2, options.tied = false;
  expected = {"embedding.weight", "position.table"};
  for (const char* path : {"blocks.0", "blocks.1"})
    block(path, {"cope.table", "cope.gate_key.weight", "cope.gate_key.bias"});
  add("norm", {"weight", "bias"});
  add("head", {"weight"});
  const Transformer untied(options);
  CHECK(paths_of(untied) == expected);
  CHECK(parameter(untied, "position.table").shape() == Shape{9, 8});  // one row per token of the training length
  CHECK(parameter(untied, "blocks.1.attention.position.cope.table").shape() == Shape{65, 4});
}

TEST_CASE("with its table still zero, CoPE's gates and positions have gradients of exactly 0, and the table has not") {
  Transformer model(small("cope"));
  model.initialise(1);
  const Tensor tokens = random_tokens(2, 9, 5, 1), targets = random_tokens(2, 9, 5, 2);
  const Tensor table = parameter(model, "blocks.0.attention.position.table");
  const auto gates = [&] {
    const Capture capture("*.gates", "*.positions");
    backward(cross_entropy(model(tokens), targets));
    CHECK(capture.names().size() == 4);
    return std::max(largest(capture["blocks.0.attention.position.gates"].gradient()),
        largest(capture["blocks.1.attention.position.positions"].gradient()));
  };
  CHECK(gates() == 0);
  CHECK(largest(gradient(table)) > 0);
  for (const char* layer : {"blocks.0", "blocks.1"}) {
    const Tensor each = parameter(model, std::string(layer) + ".attention.position.table");
    raw::copy_into(raw::unary(functions::Affine{}, gradient(each), {-1, 0}), each);
  }
  CHECK(gates() > 0);
}

TEST_CASE("frozen parameters have no gradient; the gradients of the others keep their bits") {
  Transformer model(small("cope")), twin(small("cope"));
  randomise(model), randomise(twin);
  model.freeze("*.position.table");
  const Tensor tokens = random_tokens(2, 9, 5, 1), targets = random_tokens(2, 9, 5, 2);
  backward(cross_entropy(model(tokens), targets));
  backward(cross_entropy(twin(tokens), targets));
  for (const Module::Parameter& each : model.parameters()) {
    CAPTURE(each.path);
    const bool is_table = each.path.ends_with("position.table");
    CHECK(each.frozen == is_table);
    CHECK(tracked(each.tensor) != is_table);
    if (!is_table) CHECK(same_bits(gradient(each.tensor), gradient(parameter(twin, each.path))));
  }
}

TEST_CASE("sizes that do not fit are refused as bad input") {
  const auto refusal = [](const TransformerOptions& options) {
    return message<InputError>([&] { const Transformer model(options); });
  };
  CHECK(has(refusal({.vocabulary = 0, .length = 4}), "vocabulary 0 given; 1"));
  CHECK(has(refusal({.vocabulary = 5, .length = 0}), "length 0 given; 1"));
  CHECK(has(refusal({.vocabulary = 5, .length = 4, .layers = 0}), "layers 0 given; 1"));
  CHECK(has(refusal({.vocabulary = 5, .length = 4, .heads = 0}), "heads 0 given; 1"));
  CHECK(has(refusal({.vocabulary = 5, .length = 4, .dim = -8}), "dim -8 given; 1"));
  CHECK(has(refusal({.vocabulary = 5, .outputs = 3, .length = 4}), "transformer: 3 outputs"));
  CHECK(has(message([] { const Norm norm(4, NormKind::rms, 0); }), "Norm: epsilon 0"));
}

TEST_CASE("what does not fit a decoding is refused, and changes nothing") {
  const Transformer model(small("none"));
  Decoding decoding(model, 4);
  CHECK(has(message([&] { (void)decoding(Tensor::arange(2)); }), "tokens are [2]"));
  (void)decoding(random_tokens(2, 3, 5));
  CHECK(has(message([&] { (void)decoding(random_tokens(1, 1, 5)); }), "1 given; 2 sequences"));
  CHECK(has(message([&] { (void)decoding(random_tokens(2, 2, 5)); }), "3; at most 1"));
  CHECK(decoding.length() == 3);
}

TEST_CASE("empty batches and sequences pass every scheme and executor, and back") {
  for (const SchemeInfo& info : registered_schemes()) {
    for (const std::string executor : {"auto", "reference", "strips"}) {
      CAPTURE(info.name);
      CAPTURE(executor);
      TransformerOptions options = small(info.name);
      options.executor = executor;
      std::unique_ptr<Transformer> model;
      try {
        model = random_decoder(options);
      } catch (const InputError&) { continue; }  // the scheme has no such executor
      for (const Shape& shape : {Shape{1, 0}, Shape{0, 3}}) {
        const Tensor logits = (*model)(Tensor::zeros(shape, DType::i64));
        CHECK(logits.shape() == Shape{shape[0], shape[1], 5});
        backward(sum(logits));
        CHECK(largest(gradient(parameter(*model, "embedding.weight"))) == 0);
      }
    }
  }
}

TEST_CASE("tokens that do not fit are refused") {
  const Transformer model(small("none"));
  CHECK(has(message([&] { (void)model(Tensor::arange(4)); }), "are [4]; [batch"));
  CHECK_FALSE(message([&] { (void)model(Tensor::of({0, 5}, {1, 2}, DType::i64)); }).empty());  // the vocabulary has 5
  CHECK_FALSE(message([&] { (void)model(Tensor::of({0, -1}, {1, 2}, DType::i64)); }).empty());
  CHECK_FALSE(message([&] { (void)model(Tensor::of({0, 1}, {1, 2}, DType::f32)); }).empty());
}

TEST_CASE("padding is hidden at the embedding: not even a NaN in its token reaches a row or a gradient") {
  const index_t padding_token = 4;
  const Tensor tokens = Tensor::of({1, 2, 3, 0, 2, 4, 4, 4, 3, 1, 2, 0}, {2, 6}, DType::i64);
  const Tensor present = Tensor::of({1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1}, {2, 6}, DType::boolean);
  for (const std::string scheme : {"rope", "absolute", "cope", "forgetting", "cdape(kerple)"}) {
    CAPTURE(scheme);
    TransformerOptions options = small(scheme);
    options.tied = false;
    const auto model = random_decoder(options);
    const auto run = [&] {
      const Tensor y = masked((*model)(tokens, Sequence::padded(present), {}), reshape(present, {2, 6, 1}));
      std::vector<Tensor> found = grad(sum(square(y)), {}, parameters_of(*model), {.allow_unused = true});
      found.push_back(y.detach());
      return found;
    };
    const std::vector<Tensor> before = run();
    kernels(Device::cpu())
        .fill(raw::slice(parameter(*model, "embedding.weight").detach(), 0, padding_token, padding_token + 1),
            std::nan(""));
    const std::vector<Tensor> after = run();
    CHECK(same_bits(before, after));
  }
}

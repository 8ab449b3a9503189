// The decoder: its equations, gradients of every parameter, threads, names, padding, refusals.
#include "nn/transformer.h"

#include "autograd/inspect/capture.h"
#include "autograd/inspect/graph_text.h"
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

TEST_CASE("a training step has the same bits on 1, 2 and 3 threads, and again") {
  for (const std::string text : {"cope", "absolute", "alibi + rope", "cope(p_max=16, gates=separate_keys)"}) {
    TransformerOptions options = small(text);
    options.vocabulary = 19, options.length = 48, options.dim = 64, options.heads = 4, options.hidden = 0,
    options.dropout = 0.1;
    const auto model = random_decoder(options, DType::f32);
    const Tensor tokens = random_tokens(4, 48, 19, 1), targets = random_tokens(4, 48, 19, 2);
    const Pass pass{.training = true, .seed = 3, .step = 5};
    const auto on = [&](int count) {
      const WithThreads chosen(count);
      return gradients_of_a_step(*model, tokens, targets, pass);
    };
    for (const int count : {1, 2, 3}) CHECK_MESSAGE(same_bits(on(1), on(count)), text, " on ", count, " threads");
  }
}

TEST_CASE("a model that computes its layers again: the same loss and gradients, to the bit") {
  TransformerOptions options = small("");
  options.layers = 3, options.dropout = 0.2, options.pattern_dropout = options.hidden_dropout = 0.1;
  const Tensor tokens = random_tokens(2, 9, 5), targets = random_tokens(2, 9, 5, 2);
  const Pass pass{.training = true, .seed = 5, .step = 7};
  for (const char* scheme : {"cope + rope", "t5", "absolute + dape(kerple)", "transformer_xl", "cdape(fire)"}) {
    for (const char* executor : {"auto", "strips"}) {
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        options.scheme = scheme, options.executor = executor;
        if (std::string(scheme) == "cdape(fire)" && std::string(executor) == "strips") continue;  // refused
        INFO(scheme, ", dtype ", dtype);
        std::vector<Tensor> results[2];
        for (const bool again : {false, true}) {
          options.recompute_layers = again;
          const auto model = random_decoder(options, dtype);
          const auto loss = [&] { return cross_entropy((*model)(tokens, pass), targets); };
          std::vector<Tensor>& all = results[again] = grad(loss(), {}, parameters_of(*model), {.allow_unused = true});
          const Capture capture("blocks.1.*");  // is kept
          const Tensor captured = loss();
          if (again) CHECK(has(to_dot(captured), "recompute"));
          backward(captured);
          for (const Tensor& each : {captured.detach(), capture["blocks.1.attention.q"].gradient(),
                   gradient(parameter(*model, "blocks.0.mlp.in.weight")),
                   gradient(parameter(*model, "embedding.weight"))})
            all.push_back(each);
        }
        CHECK(same_bits(results[0], results[1]));
      }
    }
  }
}

TEST_CASE("parameter paths") {
  TransformerOptions options = small("absolute + cope(gates=separate_keys) + rope");
  options.tied = false;
  std::vector<std::string> expected{"embedding.weight", "position.table"};
  const auto add = [&](const std::string& path, std::initializer_list<const char*> names) {
    for (const char* name : names) expected.push_back(path + "." + name);
  };
  for (const std::string path : {"blocks.0", "blocks.1"}) {
    add(path + ".norm1", {"weight", "bias"});
    for (const char* name : {"query", "key", "value", "output"}) add(path + ".attention." + name, {"weight", "bias"});
    add(path + ".attention.position.cope", {"table", "gate_key.weight", "gate_key.bias"});
    for (const char* name : {".norm2", ".mlp.in", ".mlp.out"}) add(path + name, {"weight", "bias"});
  }
  add("norm", {"weight", "bias"}), add("head", {"weight"});
  const Transformer model(options);
  CHECK(paths_of(model) == expected);
  CHECK(parameter(model, "position.table").shape() == Shape{9, 8});  // one row per token of the training length
  CHECK(parameter(model, "blocks.1.attention.position.cope.table").shape() == Shape{65, 4});
  options.scheme = "cope", options.tied = true;
  const std::vector<std::string> paths = paths_of(Transformer(options));  // of a single scheme without its name
  CHECK(std::ranges::count(paths, "blocks.1.attention.position.table") == 1);
  CHECK(paths.back() == "norm.bias");
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
      INFO(info.name, ", executor ", executor);
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

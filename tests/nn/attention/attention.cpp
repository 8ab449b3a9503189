// An attention layer: the order of its tokens, sizes that do not fit, names of probes.
#include "nn/attention/attention.h"

#include <doctest/doctest.h>

#include "autograd/inspect/capture.h"
#include "nn/attention/plan.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

constexpr index_t dim = 8, heads = 2, length = 6;

class Layer {
 public:
  explicit Layer(const std::string& scheme)
      : attention_({.dim = dim, .heads = heads, .length = length}, parse_schemes(scheme)) {
    randomise(attention_);
  }
  Tensor operator()(const Tensor& x, const Sequence& sequence) const { return attention_(x, sequence); }
  Tensor operator()(const Tensor& x) const { return (*this)(x, Sequence::run(x.size(1))); }

 private:
  Attention attention_;
};

}  // namespace

TEST_CASE("without positions and mask, attention does not know the order of its tokens") {
  const Layer layer("none");
  const Tensor x = normal({1, length, dim}, 1);
  const Tensor order = Tensor::of({3, 1, 5, 0, 2, 4}, {length}, DType::i64);
  const auto reorder = [&](const Tensor& y) {
    return reshape(take_rows(reshape(y, {length, dim}), order), {1, length, dim});
  };
  const Sequence all = Sequence::run(length, false);
  CHECK(distance(reorder(layer(x, all)), layer(reorder(x), all)) < 1e-14);
  CHECK(distance(reorder(layer(x)), layer(reorder(x))) > 1e-3);  // because of the causal mask
}

TEST_CASE("sizes and executors that do not fit are refused as bad input") {
  const auto refusal = [](const AttentionOptions& options) {
    return message<InputError>([&] { const Attention attention(options, parse_schemes("none")); });
  };
  CHECK(refusal({.dim = 10, .heads = 3}) == "attention: dim 10 with 3 heads given; dim must be a multiple of heads");
  CHECK(refusal({.dim = 8, .heads = 0}) == "attention: dim 8 with 0 heads given; dim must be a multiple of heads");
  CHECK(refusal({.dim = 6, .heads = 2}).empty());
  CHECK(refusal({.dim = 8, .heads = 2, .dropout = 1}) == "dropout: 1 given; at least 0 and less than 1 required");
  const std::string executor = refusal({.dim = 8, .heads = 2, .executor = "refrence"});
  CHECK(executor.starts_with("executor: 'refrence' given; one of auto, reference"));
  CHECK(executor.ends_with("; did you mean 'reference'?"));
}

TEST_CASE("explain() names the executor that runs on a device, and why") {
  const auto explained = [](const char* scheme, const char* executor, Device device, DType dtype, index_t tokens) {
    return Attention({.dim = 8, .heads = 2, .executor = executor}, parse_schemes(scheme))
        .explain(device, dtype, 1, tokens);
  };
  const Device cpu = Device::cpu(), gpu = Device::cuda(0);
  CHECK(explained("cope", "auto", cpu, DType::f32, 8) == "tiled (reference while probes are captured)");
  CHECK(explained("cope", "auto", gpu, DType::f64, 8) == "reference (no tile programs for f64 on a GPU)");
  CHECK(explained("cope", "auto", gpu, DType::f32, 8) == "tiled (reference while probes are captured)");
  CHECK(explained("cope", "auto", cpu, DType::bf16, 8) == "reference (no tile programs for bf16 on the CPU)");
  CHECK(explained("cope_mlp", "auto", cpu, DType::f32, 8) ==
        "reference (tiled " +
            refusal_of(Executor::tiled, Attention({.dim = 8, .heads = 2}, parse_schemes("cope_mlp")).stages()) + ")");
  const std::string whole = "; reference while probes are captured)";
  CHECK(explained("alibi + stick_breaking", "auto", cpu, DType::f32, 8) ==
        "strips (not tiled: distance_table given with a stick to break; the scores alone required" + whole);
  CHECK(explained("dape(kerple) + cope", "tiled", cpu, DType::f32, 8) ==
        "strips (not tiled: position_keys given, which is not read here; undefined required" + whole);
  CHECK(explained("cope(interpolation=equation5)", "auto", cpu, DType::f32, 8).find("interpolation=equation5") !=
        std::string::npos);
  // Scores of 2 heads: 2 GiB at length 11585, and beyond.
  CHECK(explained("cope", "auto", gpu, DType::f64, 11585).starts_with("reference"));
  CHECK(explained("cope", "auto", gpu, DType::f64, 11586) ==
        "strips (no tile programs for f64 on a GPU; scores exceed 2 GiB; reference while probes are captured)");
  CHECK(explained("mta", "auto", gpu, DType::f32, 16385).starts_with("reference"));  // a row of mta needs other rows
  CHECK(explained("cope", "reference", cpu, DType::f32, 8) == "reference (as asked)");
  CHECK(explained("cope", "strips", gpu, DType::f32, 8) == "strips (as asked; reference while probes are captured)");
  CHECK(explained("cope", "tiled", gpu, DType::f64, 8).starts_with("strips (no tile programs for f64 on a GPU"));
  const Capture capture("*");
  CHECK(explained("cope", "auto", cpu, DType::f32, 8) == "reference (every probe live)");
}

TEST_CASE("probes of one layer, in the order of the stages") {
  const Layer layer("cope + alibi");
  const Capture capture("*");
  (void)layer(normal({1, length, dim}, 1));
  CHECK(capture.names() == std::vector<std::string>{"x", "q", "k", "v", "scores", "position.alibi.bias",
                               "position.cope.gate_logits", "position.cope.gates", "position.cope.positions",
                               "position.cope.z", "position.cope.position_logit", "logits", "pattern", "output"});
  const Tensor pattern = capture["pattern"].value();
  CHECK(distance(sum(pattern, {-1}), Tensor::ones({1, heads, length}, DType::f64)) < 1e-15);
  CHECK(pattern.at({0, 0, 1, 2}) == 0);
  const Tensor total = capture["scores"].value() + capture["position.alibi.bias"].value() +
                       capture["position.cope.position_logit"].value();
  CHECK(distance(capture["logits"].value(), total) < 1e-15);
}

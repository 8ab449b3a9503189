// An attention layer: sizes that do not fit, the choice of an executor, names of probes.
#include "nn/attention/attention.h"

#include "autograd/inspect/capture.h"
#include "nn/attention/plan.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

constexpr index_t dim = 8, heads = 2, length = 6;

}  // namespace

TEST_CASE("sizes and executors that do not fit are refused as bad input") {
  const auto refusal = [](const AttentionOptions& options) {
    return message<InputError>([&] { const Attention attention(options, parse_schemes("none")); });
  };
  CHECK(has(refusal({.dim = 10, .heads = 3}), "dim 10 with 3"));
  CHECK(has(refusal({.dim = 8, .heads = 0}), "dim 8 with 0"));
  CHECK(refusal({.dim = 6, .heads = 2}).empty());
  for (const index_t kv_heads : {3, 8})
    CHECK(has(refusal({.dim = 8, .heads = 4, .kv_heads = kv_heads}), to_text("kv_heads ", kv_heads, " with 4")));
  CHECK(refusal({.dim = 8, .heads = 4, .kv_heads = 2}).empty());
  CHECK(has(refusal({.dim = 8, .heads = 2, .dropout = 1}), "dropout: 1 given"));
  const std::string executor = refusal({.dim = 8, .heads = 2, .executor = "refrence"});
  CHECK((has(executor, "executor: 'refrence'") && has(executor, "'reference'?")));
}

TEST_CASE("explain() names the executor that runs on a device, and why") {
  const auto explained = [](const char* scheme, const char* executor, Device device, DType dtype, index_t tokens) {
    return Attention({.dim = 8, .heads = 2, .executor = executor}, parse_schemes(scheme))
        .explain(device, dtype, 1, tokens);
  };
  const Device cpu = Device::cpu(), gpu = Device::cuda(0);
  const auto check = [&](const std::string& text, const char* executor, const char* why) {
    CHECK_MESSAGE((text.starts_with(executor) && has(text, why)), text);
  };
  check(explained("cope", "auto", cpu, DType::f32, 8), "tiled (", "probes");
  check(explained("cope", "auto", gpu, DType::f32, 8), "tiled (", "probes");
  check(explained("cope", "auto", gpu, DType::f64, 8), "reference (", "for f64");
  check(explained("cope", "auto", cpu, DType::bf16, 8), "reference (", "for bf16");
  check(explained("cope_mlp", "auto", cpu, DType::f32, 8), "reference (", "tiled ");
  check(explained("alibi + stick_breaking", "auto", cpu, DType::f32, 8), "strips (", "distance_table");
  check(explained("dape(kerple) + cope", "tiled", cpu, DType::f32, 8), "strips (", "position_keys");
  check(explained("cope(interpolation=equation5)", "auto", cpu, DType::f32, 8), "strips", "interpolation=equation5");
  // Scores of 2 heads: 2 GiB at length 11585, and beyond.
  check(explained("cope", "auto", gpu, DType::f64, 11585), "reference", "");
  check(explained("cope", "auto", gpu, DType::f64, 11586), "strips (", "2 GiB");
  check(explained("mta", "auto", gpu, DType::f32, 16385), "reference", "");  // a row of mta needs other rows
  check(explained("cope", "reference", cpu, DType::f32, 8), "reference (", "as asked");
  check(explained("cope", "strips", gpu, DType::f32, 8), "strips (", "as asked");
  check(explained("cope", "tiled", gpu, DType::f64, 8), "", "for f64");
  const Capture capture("*");
  check(explained("cope", "auto", cpu, DType::f32, 8), "reference (", "probe");
}

TEST_CASE("probes of one layer, in the order of the stages") {
  Attention layer({.dim = dim, .heads = heads, .length = length}, parse_schemes("cope + alibi"));
  randomise(layer);
  const Capture capture("*");
  (void)layer(normal({1, length, dim}, 1), Sequence::run(length));
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

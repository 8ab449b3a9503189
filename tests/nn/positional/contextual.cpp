// Properties of CoPE, its variants and hard attention. Worked numbers: worked/examples.cpp.
#include "autograd/inspect/capture.h"
#include "examples/whence/verify/checks.h"
#include "nn/attention/plan.h"
#include "nn/positional/cope.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

TEST_CASE("contextual: z_scale multiplies a network's outputs") {
  const AttendInputs inputs = random_inputs(9);
  const Bare mlp("cope_mlp(width=3)"), scaled("cope_mlp(width=3, z_scale=head)");
  for (const char* each : {"output.weight", "output.bias"}) scaled.set(each, mlp[each] * 2.0);  // sqrt(d)
  CHECK(distance(scaled.logits(inputs), mlp.logits(inputs)) < 1e-13);
}

TEST_CASE("contextual: fixed slopes are learned ones with these numbers") {
  const AttendInputs inputs = random_inputs(6);
  const Bare learned("cope_alibi(slopes=learned)");
  const std::tuple<const char*, double, double> rows[] = {{"cope_alibi", 0x1p-4, 0x1p-8},  // 2^(-8(h+1)/2)
      {"cope_alibi(slopes=halving)", 1, 0.5}, {"cope_alibi(slopes=halving, first=0.25, sign=plus)", -0.25, -0.125}};
  for (const auto& [text, first, second] : rows) {
    learned.set("slopes", Tensor::of({first, second}, {2}, DType::f64));
    CHECK_MESSAGE(distance(Bare(text).logits(inputs), learned.logits(inputs)) < 1e-13, text);
  }
}

TEST_CASE("contextual: what a network per head adds to the scores, by hand from the positions") {
  const AttendInputs inputs = random_inputs(6);
  for (const auto& [text, factor] : {std::pair{"cope_mlp(width=3, output=head)", 1.0},
           {"cope_mlp(width=3, output=head, z_scale=head)", 0.5}}) {  // 1 / sqrt(d)
    CAPTURE(text);
    const Bare scheme(text);
    const Capture capture("positions", "position_logit");
    (void)scheme.output(inputs);
    const Tensor p = unsqueeze(capture["positions"].value(), -1);
    const Tensor hidden = relu(linear(p, scheme["hidden.weight"], scheme["hidden.bias"]));
    const Tensor by_head = linear(hidden, scheme["output.weight"], scheme["output.bias"]) * factor;  // [b h i j h]
    for (index_t h = 0; h < 2; ++h)
      CHECK(distance(inputs.sequence.masked(slice(select(by_head, -1, h), 1, h, h + 1)),
                inputs.sequence.masked(slice(capture["position_logit"].value(), 1, h, h + 1))) < 1e-13);
  }
}

TEST_CASE("contextual: positions are counted in 32 bits where the model has 16") {
  const index_t length = 600;
  const Bare scheme("cope(p_max=512)", 1, 2, length);
  scheme.root().to(DType::bf16);
  const Tensor large = Tensor::full({1, 1, length, 2}, 9, DType::bf16);
  const Capture capture("positions");
  const Tensor output =
      scheme.output({.x = {}, .query = large, .key = large, .value = large, .sequence = Sequence::run(length)});
  CHECK(output.dtype() == DType::bf16);
  for (const index_t j : {0, 87, 88, 301, 344, 599})
    CHECK(capture["positions"].value().at({0, 0, 599, j}) == std::min<double>(512, 600 - static_cast<double>(j)));
}

TEST_CASE("hard attention: one value, the first of equals, none where nothing is allowed, NaN in the row of a NaN") {
  const Bare hard("hard_attention", 1, 2, 4);
  AttendInputs inputs{.x = {},
      .query = Tensor::ones({1, 1, 4, 2}, DType::f64),
      .key = Tensor::of({1, 1, 5, 5, 5, 5, 0, 0}, {1, 1, 4, 2}, DType::f64),
      .value = normal({1, 1, 4, 2}, 3),
      .sequence = Sequence::padded(Tensor::of({0, 1, 1, 1}, {1, 4}, DType::boolean))};
  const Tensor output = hard.output(inputs);
  CHECK(largest(slice(output, 2, 0, 1)) == 0);  // the first token sees padding alone
  for (index_t row = 1; row < 4; ++row)
    CHECK(distance(slice(output, 2, row, row + 1), slice(inputs.value, 2, 1, 2)) == 0);
  kernels(Device::cpu()).fill(slice(slice(inputs.query, 2, 3, 4), 3, 0, 1), NAN);
  for (index_t i = 1; i < 4; ++i) CHECK(std::isnan(hard.output(inputs).at({0, 0, i, 0})) == (i == 3));
}

namespace {

// CoPE with a temperature per head: g_ij = sigmoid(q_i.k_j / (T_h sqrt(d))).
class WarmCoPE final : public CoPE {
 public:
  explicit WarmCoPE(const SchemeArguments& given)
      : CoPE(given), inverse_(param("inverse_temperature", {given.sizes().heads, 1, 1}, Init::constant(1))) {}

 private:
  GateLogits gate_logits(const AttendContext& context) const override {
    const auto [query, key, scale] = CoPE::gate_logits(context);
    return {query * inverse_, key, scale};
  }
  Tensor inverse_;  // 1 / T
};

}  // namespace

TEST_CASE("contextual: a temperature of the gates in ten lines passes the checks of a scheme, in tiles too") {
  SchemeInfo info = CoPE::info();
  info.name = "warm_cope", info.aliases = {}, info.paper = "tests/nn/positional/contextual.cpp";
  info.make = make_scheme<WarmCoPE>;
  static const RegisterScheme registered{info};
  const CheckReport report = check_scheme("warm_cope(p_max=3)");
  CHECK_MESSAGE(report.ok(), report.text());
  const Bare warm("warm_cope(p_max=3)"), cope("cope(p_max=3)");
  const AttendInputs inputs = random_inputs(9);
  CHECK(refusal_by_tiles(inputs, warm.stages(), call_of(inputs)).empty());
  warm.set("table", cope["table"]), warm.fill("inverse_temperature", 0.5);
  const auto logits_of_gates = [&](const Bare& scheme) {
    const Capture capture("*gate_logits");
    (void)scheme.output(inputs);
    return capture["gate_logits"].value();
  };
  CHECK(distance(logits_of_gates(warm) * 2.0, logits_of_gates(cope)) < 1e-14);
}

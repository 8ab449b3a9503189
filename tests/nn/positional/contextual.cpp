// Properties of CoPE, its variants and hard attention. Worked numbers: tests/nn/positional/worked/contextual.cpp.
#include "autograd/inspect/capture.h"
#include "examples/whence/verify/checks.h"
#include "nn/attention/plan.h"
#include "nn/positional/cope.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

TEST_CASE("contextual: saturated CoPE is relative and capped; closed gates leave e[0]") {
  AttendInputs inputs = random_inputs(9);
  const Bare cope("cope(p_max=4, z_scale=head)"), relative("relative(rows=4, capped=yes)"), none("none");
  relative.set("table", slice(cope["table"], 0, 1, 5));  // r[n] = e[n+1]: an open gate counts its own key
  // Logits whose sigmoid is exactly 1, or below 1e-300.
  const auto scaled = [&](double factor) {
    AttendInputs large = inputs;
    large.query = abs(inputs.query) + 20.0;
    large.key = (abs(inputs.key) + 20.0) * factor;
    return large;
  };
  CHECK(distance(cope.logits(scaled(1)), relative.logits(scaled(1))) < 1e-11);
  const AttendInputs closed = scaled(-1);
  const Tensor first =
      matmul(closed.query, reshape(slice(cope["table"], 0, 0, 1), {-1, 1}), 0.5);  // q.e[0] / sqrt(d), [b h i 1]
  CHECK(distance(cope.logits(closed), masked(none.logits(closed) + first, closed.sequence.mask())) < 1e-11);
}

TEST_CASE("contextual: CoPE without a table is no position; z_scale multiplies the table or the network's outputs") {
  const AttendInputs inputs = random_inputs(9);
  const Bare cope("cope(p_max=3)"), scaled("cope(p_max=3, z_scale=head)"), none("none");
  scaled.set("table", cope["table"] * 2.0);  // sqrt(d) e
  CHECK(distance(scaled.logits(inputs), cope.logits(inputs)) < 1e-13);
  const Bare mlp("cope_mlp(width=3)"), scaled_mlp("cope_mlp(width=3, z_scale=head)");
  for (const char* each : {"output.weight", "output.bias"}) scaled_mlp.set(each, mlp[each] * 2.0);
  CHECK(distance(scaled_mlp.logits(inputs), mlp.logits(inputs)) < 1e-13);
  cope.fill("table", 0);
  CHECK(distance(cope.logits(inputs), none.logits(inputs)) == 0);
}

TEST_CASE("contextual: what slopes and a network per head add to the scores, by hand from the positions") {
  const AttendInputs inputs = random_inputs(6);
  // f(head, position of the pair) is the scheme's bias.
  const auto check = [&](const std::string& text, const std::function<double(const Bare&, index_t, double)>& f) {
    CAPTURE(text);
    const Bare scheme(text);
    const Capture capture("*positions", "*position_logit");
    (void)scheme.output(inputs);
    const Tensor p = capture["positions"].value(), added = capture["position_logit"].value();
    for (index_t h = 0; h < 2; ++h)
      for (index_t i = 0; i < 6; ++i)
        for (index_t j = 0; j <= i; ++j)
          CHECK(std::fabs(added.at({0, h, i, j}) - f(scheme, h, p.at({0, h, i, j}))) < 1e-13);
  };
  const auto slope = [](double first, double ratio) {
    return [=](const Bare&, index_t h, double p) { return first * std::pow(ratio, static_cast<double>(h)) * p; };
  };
  check("cope_alibi", slope(-0x1p-4, 0x1p-4));  // 2^(-8(h+1)/2)
  check("cope_alibi(slopes=halving)", slope(-1, 0.5));
  check("cope_alibi(slopes=halving, first=0.25, sign=plus)", slope(0.25, 0.5));
  const auto network = [](double factor) {  // W2[h] relu(w1 p + b1) + b2[h]
    return [=](const Bare& scheme, index_t h, double p) {
      double y = scheme["output.bias"].at({h});
      for (index_t n = 0; n < 3; ++n)
        y += scheme["output.weight"].at({h, n}) *
             std::max(0.0, scheme["hidden.weight"].at({n, 0}) * p + scheme["hidden.bias"].at({n}));
      return factor * y;
    };
  };
  check("cope_mlp(width=3, output=head)", network(1));
  check("cope_mlp(width=3, output=head, z_scale=head)", network(0.5));  // 1 / sqrt(d)
}

TEST_CASE("contextual: Eq. 5 as printed jumps at whole positions where Listing 1 does not") {
  const auto bias_at = [](const std::string& text, double position) {  // with three gates that add up to `position`
    const Bare scheme(text, 1, 1, 3);
    scheme.set("table", Tensor::of({0, 10, 20, 30}, {4, 1}, DType::f64));
    const double gate = position / 3, logit = std::log(gate / (1 - gate));
    const AttendInputs inputs{.x = {},
        .query = Tensor::ones({1, 1, 3, 1}, DType::f64),
        .key = Tensor::full({1, 1, 3, 1}, logit, DType::f64),
        .value = Tensor::ones({1, 1, 3, 1}, DType::f64),
        .sequence = Sequence::run(3)};
    return scheme.logits(inputs).at({0, 0, 2, 0}) - logit;
  };
  const std::string listing = "cope(p_max=3)", printed = "cope(p_max=3, interpolation=equation5)";
  CHECK(bias_at(listing, 2 - 1e-9) == doctest::Approx(20));
  CHECK(bias_at(listing, 2 + 1e-9) == doctest::Approx(20));
  CHECK(bias_at(printed, 2 - 1e-9) == doctest::Approx(10));
  CHECK(bias_at(printed, 2 + 1e-9) == doctest::Approx(30));
  CHECK(bias_at(listing, 2.1) == doctest::Approx(21));
  CHECK(bias_at(printed, 2.1) == doctest::Approx(29));  // 0.9 on e[3]
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
  const Tensor positions = capture["positions"].value();
  for (const index_t j : {0, 87, 88, 301, 344, 599})
    CHECK(positions.at({0, 0, 599, j}) == std::min<double>(512, 600 - static_cast<double>(j)));
}

TEST_CASE("contextual: a NaN in a query of hard attention stays NaN in its row, as softmax has it") {
  AttendInputs inputs = random_inputs(5);
  const Tensor place = raw::slice(raw::slice(inputs.query.detach(), 2, 3, 4), 3, 0, 1);
  kernels(Device::cpu()).fill(place, NAN);
  const Tensor found = Bare("hard_attention").output(inputs);
  for (index_t i = 0; i < 5; ++i) CHECK(std::isnan(found.at({0, 0, i, 0})) == (i == 3));
}

TEST_CASE("contextual: hard attention takes one value, the first of equals, and none where nothing is allowed") {
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
}

TEST_CASE("contextual: one table for all layers has the gradients of all; the first layer alone has CoPE_MLP") {
  const auto one = random_decoder(small("cope(p_max=3, table=shared)")), each = random_decoder(small("cope(p_max=3)"));
  for (const Module::Parameter& own : each->parameters()) {
    const std::string path = own.path.ends_with("table") ? "position.table" : own.path;
    raw::copy_into(parameter(*one, path), own.tensor);
  }
  const Tensor tokens = random_tokens(2, 9, 5);
  const auto loss = [&](const Transformer& model) {
    const Tensor logits = model(tokens);
    return sum(logits * normal(logits.shape(), 8));
  };
  CHECK(one->parameter_count() + 16 == each->parameter_count());
  const Tensor together = grad(loss(*one), {}, {parameter(*one, "position.table")})[0];
  const std::vector<Tensor> apart = grad(loss(*each), {},
      {parameter(*each, "blocks.0.attention.position.table"), parameter(*each, "blocks.1.attention.position.table")});
  CHECK(distance(together, (apart[0] + apart[1]).detach()) < 1e-12);

  const auto first = random_decoder(small("layers(cope_mlp(width=3), count=1)"));
  std::vector<std::string> paths;
  for (const Module::Parameter& parameter : first->parameters())
    if (parameter.path.find("position") != std::string::npos) paths.push_back(parameter.path);
  CHECK(paths == std::vector<std::string>{"blocks.0.attention.position.hidden.weight",
                     "blocks.0.attention.position.hidden.bias", "blocks.0.attention.position.output.weight",
                     "blocks.0.attention.position.output.bias"});
}

TEST_CASE("contextual: what would have no effect or no meaning is refused, with a reason") {
  const auto refused = [](const std::string& text) { return error_text([&] { (void)Bare(text); }); };
  const auto says = [&](const std::string& text, const std::string& part) {
    CHECK_MESSAGE(refused(text).find(part) != std::string::npos, text << " says: " << refused(text));
  };
  says("cope(z_from=rotated)", "without a scheme that rotates");
  says("cope_mlp(z_from=rotated)", "without a scheme that rotates");
  says("cope(table=shared, gates=separate_keys)", "table=per_layer required");
  says("cope_mlp(p_max=4)", "'p_max' is no option of cope_mlp");
  says("cope_mlp(output=head, z_from=unrotated)", "which reads no query");
  says("cope_alibi(first=0.25)", "it has no effect without slopes=halving");
  says("cope_alibi(slopes=learned, first=1)", "it has no effect without slopes=halving");
  says("cope_alibi(p_max=4)", "'p_max' is no option of cope_alibi");
  const Bare separate("cope(gates=separate_keys)");
  AttendInputs inputs = random_inputs(4);
  inputs.x = Tensor();
  CHECK(has(error_text([&] { (void)separate.output(inputs); }), "layer's input"));
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
  for (const char* text : {"warm_cope(p_max=3)", "warm_cope(p_max=3) + rope", "warm_cope(p_max=3, gates=values)"}) {
    const CheckReport report = check_scheme(text);
    CHECK_MESSAGE(report.ok(), report.text());
    const Bare warm(text);
    const AttendInputs inputs = random_inputs(9);
    CHECK(refusal_by_tiles(inputs, warm.stages(), call_of(inputs)).empty());
    CHECK(distance(warm.output(inputs, Executor::tiled), warm.output(inputs)) < 1e-13);
  }
  // A temperature of 2 halves the logits of the gates, and nothing else.
  const AttendInputs inputs = random_inputs(9);
  const Bare warm("warm_cope(p_max=3)"), cope("cope(p_max=3)");
  warm.set("table", cope["table"]);
  const auto logits_of_gates = [&](const Bare& scheme, double inverse) {
    if (&scheme == &warm) warm.fill("inverse_temperature", inverse);
    const Capture capture("*gate_logits");
    (void)scheme.output(inputs);
    return capture["gate_logits"].value();
  };
  CHECK(distance(logits_of_gates(warm, 0.5) * 2.0, logits_of_gates(cope, 1)) < 1e-14);
  warm.fill("inverse_temperature", 1);
  CHECK(distance(warm.output(inputs), cope.output(inputs)) < 1e-14);
}

// Properties of schemes of distances and of rotations: options, 16 bits, initial parameters. Worked numbers:
// worked/examples.cpp.
#include "autograd/inspect/capture.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

// Returns the bias that a scheme adds to the scores, [b h i j], masked entries 0.
Tensor added(const Bare& scheme, const AttendInputs& inputs) {
  return (scheme.logits(inputs) - Bare("none").logits(inputs)).detach();
}

double at(const Tensor& x, index_t head, index_t i, index_t j) { return x.at({0, head, i, j}); }

// Returns the bias of one query at 0 for keys `distances` to its left, in a model of two heads and this dtype.
Tensor bias_at(const std::string& text, const std::vector<double>& distances, DType dtype) {
  const auto scheme = parse_schemes(text)[0].make({8, 2, 9});
  randomise(*scheme, dtype);
  AttendContext context;
  const auto count = static_cast<index_t>(distances.size());
  context.positions = {
      .query = Tensor::zeros({1}, DType::f64), .key = Tensor::of(distances, {count}, DType::f64) * -1.0};
  context.content_scores = Tensor::zeros({1, 2, 1, count}, dtype);
  return dynamic_cast<const BiasesScores&>(*scheme).bias(context).detach();
}

}  // namespace

TEST_CASE("with all parameters at 0, or put inside their bounds from there, biases and gradients are finite") {
  for (const std::string text : {"kerple", "kerple(form=power)", "fire(width=4)", "t5", "alibi"}) {
    for (const double value : {0.0, -1.0}) {
      INFO(text, ", value ", value);
      const Bare scheme(text);
      for (const Module::Parameter& parameter : scheme.root().parameters()) {
        kernels(Device::cpu()).fill(parameter.tensor.detach(), value);
        parameter.put_inside_bounds();
      }
      const Tensor output = scheme.output(random_inputs(6));
      CHECK(std::isfinite(largest(output)));
      for (const Tensor& each : grad(sum(square(output)), {}, parameters_of(scheme.root()), {.allow_unused = true}))
        if (each.defined()) CHECK(std::isfinite(largest(each)));
    }
  }
}

TEST_CASE("interpolation and YaRN by factor 1 are RoPE; dynamic YaRN is, up to its original length; no pair is none") {
  const AttendInputs inputs = random_inputs(9);
  const Tensor rope = Bare("rope").logits(inputs).detach();
  for (const std::string text : {"interpolated(rope, factor=1)", "yarn(factor=1)", "yarn(dynamic=yes, original=9)",
           "yarn(dynamic=yes, original=30)", "rope(scaling=dynamic, factor=2, original=30)", "rope(keep=1)"})
    CHECK_MESSAGE(distance(Bare(text).logits(inputs).detach(), rope) < 1e-13, text);
  for (const char* text : {"rope(keep=0)", "rope(keep=0.4)"})  // 0.4 of two pairs is none
    CHECK(distance(Bare(text).logits(inputs), Bare("none").logits(inputs)) == 0);
  CHECK(distance(Bare("yarn(dynamic=yes, original=8)").logits(inputs).detach(), rope) > 1e-3);
  // The run's dynamic factor equals a fixed factor for its length.
  CHECK(distance(Bare("yarn(dynamic=yes, original=6)").logits(inputs).detach(),
            Bare("yarn(original=6, factor=1.5)").logits(inputs).detach()) < 1e-13);
}

TEST_CASE("interpolation divides distances: equal ones stay equal, and whole multiples of the factor whole") {
  AttendInputs inputs = random_inputs(13);
  inputs.query = inputs.query * 0.0;  // logits are the biases
  for (const std::string factor : {"3", "1.5", "7", "0.7"}) {
    CAPTURE(factor);
    const Bare scheme("interpolated(t5(buckets=16, max_distance=40), factor=" + factor + ")");
    std::vector<double> table;
    for (index_t row = 0; row < 32; ++row) table.push_back(static_cast<double>(row / 2));  // tau[row, head] = row
    scheme.set("table", Tensor::of(table, {16, 2}, DType::f64));
    const Tensor bias = scheme.logits(inputs).detach();
    for (index_t i = 0; i < 13; ++i) {
      for (index_t j = 0; j <= i; ++j) {
        CHECK(at(bias, 1, i, j) == at(bias, 1, i - j, 0));
        if (factor == "3") CHECK(at(bias, 1, i, j) == static_cast<double>((i - j) / 3));  // one bucket a step
      }
    }
  }
  // Drawn distances are divided, in either order of the two schemes.
  for (const char* text : {"randomised(interpolated(alibi, factor=4), length=64)",
           "interpolated(randomised(alibi, length=64), factor=4)"}) {
    const Tensor divided = Bare(text).logits(inputs).detach();
    CHECK(at(divided, 0, 5, 5) == 0);
    CHECK(at(divided, 0, 5, 4) < 0);
    for (index_t i = 0; i < 13; ++i) CHECK(at(divided, 0, i, 0) == at(divided, 0, 12, 12 - i));
  }
  for (const std::string factor : {"4", "0.5"}) {  // and drawn positions: no two tokens are at one
    const Tensor divided =
        Bare("interpolated(randomised(kerple, length=64), factor=" + factor + ")").logits(inputs).detach();
    for (index_t j = 0; j < 12; ++j) CHECK(at(divided, 0, 12, j) < at(divided, 0, 12, j + 1));
  }
  CHECK(distance(Bare("interpolated(shifted(randomised(kerple, length=64), by=3), factor=2)").logits(inputs).detach(),
            Bare("shifted(interpolated(randomised(kerple, length=64), factor=2), by=3)").logits(inputs).detach()) == 0);
  CHECK(distance(Bare("shifted(interpolated(alibi, factor=4), by=3)").logits(inputs).detach() * 4.0,
            Bare("alibi").logits(inputs).detach()) == 0);
}

TEST_CASE("Transformer-XL's probes: content_logit is (q + u).k / sqrt(d), content_bias_logit what u adds") {
  const AttendInputs inputs = random_inputs(7);
  const Bare scheme("transformer_xl");
  const Capture capture("*");
  const Tensor logits = scheme.logits(inputs).detach(), content = capture["content_logit"].value();
  const Tensor u = reshape(scheme["content_bias"], {1, 2, 1, 4});
  CHECK(distance(content, matmul(inputs.query + u, transpose(inputs.key), 0.5).detach()) < 1e-13);
  CHECK(distance(content - capture["scores"].value(), expand(capture["content_bias_logit"].value(), content.shape())) <
        1e-13);
  CHECK(distance(masked(content + capture["position_logit"].value(), inputs.sequence.mask()), logits) < 1e-13);
}

TEST_CASE("YaRN of some dims leaves the others as they are") {
  const AttendInputs inputs = random_inputs(9);
  const Capture capture("rotated_q");
  (void)Bare("yarn(width=2)").logits(inputs);
  CHECK(distance(slice(capture["rotated_q"].value(), 3, 2, 4), slice(inputs.query, 3, 2, 4).detach()) == 0);
}

TEST_CASE("dynamic YaRN: each sequence has its own factor") {
  const Bare scheme("yarn(dynamic=yes, original=4)");
  for (const index_t begin : {3, 0}) {
    const AttendInputs both = random_inputs(9, Sequence::padded(present_but(9, begin, 3 - begin)), 2);
    const index_t end = begin + 6;
    AttendInputs second = random_inputs(6);
    second.query = slice(slice(both.query, 0, 1, 2), 2, begin, end),
    second.key = slice(slice(both.key, 0, 1, 2), 2, begin, end);
    const Tensor in_batch = slice(slice(slice(scheme.logits(both), 0, 1, 2), 2, begin, end), 3, begin, end);
    CHECK(distance(contiguous(in_batch).detach(), scheme.logits(second).detach()) < 1e-13);
  }
}

TEST_CASE("t5: a bucket that begins at a whole logarithm is not lost to rounding") {
  const Bare t5("t5(buckets=9, max_distance=128)");  // E = 4: ln(8/4) / ln(128/4) 5 = 1, a little less in double
  const Tensor numbers = reshape(Tensor::arange(9, DType::f64), {9, 1});
  t5.set("table", expand(numbers, {9, 2}));
  const Tensor b = added(t5, random_inputs(65));
  for (const auto& [distance_in_tokens, bucket] :
      {std::pair<index_t, double>{3, 3}, {7, 4}, {8, 5}, {15, 5}, {16, 6}, {63, 7}, {64, 8}})
    CHECK(at(b, 0, distance_in_tokens, 0) == doctest::Approx(bucket));
}

TEST_CASE("KERPLE and Sandwich look both ways alike where no mask is causal") {
  const AttendInputs inputs = random_inputs(7, Sequence::run(7, false));
  for (const std::string text : {"kerple", "kerple(form=power)", "sandwich"}) {
    CAPTURE(text);
    const Tensor b = added(Bare(text), inputs);
    CHECK(distance(b, contiguous(transpose(b))) < 1e-13);
  }
}

TEST_CASE("Shaw: a clip beyond the run clips nothing") {
  const AttendInputs inputs = random_inputs(9, Sequence::run(9, false));
  const Bare wide("shaw(clip=20)"), exact("shaw(clip=8)");
  for (const char* table : {"key_table", "value_table"}) exact.set(table, slice(wide[table], 0, 12, 29));
  CHECK(distance(wide.output(inputs), exact.output(inputs)) < 1e-13);
}

TEST_CASE("FIRE: Lambda is an absolute value; init_length=0 is half the training length") {
  const Bare fire("fire(width=4, init_length=6)"), of_length("fire(width=4, init_length=0)");
  const Tensor positive = added(fire, random_inputs(12));
  CHECK(distance(added(of_length, random_inputs(12)), positive) == 0);
  fire.set("threshold_scale", fire["threshold_scale"] * -1.0);
  CHECK(distance(added(fire, random_inputs(12)), positive) == 0);
}

TEST_CASE("biases of far keys keep their precision in 16 bits") {
  const std::vector<double> distances{0, 1, 255, 2049, 4097, 30001};
  for (const std::string text : {"alibi", "kerple", "t5", "sandwich", "fire(width=4)"}) {
    CAPTURE(text);
    const Tensor exact = bias_at(text, distances, DType::f64);
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      CAPTURE(dtype);
      const std::vector<double> found = bias_at(text, distances, dtype).to_vector(), wanted = exact.to_vector();
      for (std::size_t k = 0; k < wanted.size(); ++k)
        CHECK(std::fabs(found[k] - wanted[k]) < 8 * epsilon_of(dtype) * (1 + std::fabs(wanted[k])));
    }
  }
}

TEST_CASE("initial distributions, and which parameters decay") {
  struct Row {
    const char *scheme, *parameter, *init;
    bool decays;
  };
  for (const Row& row : {Row{"kerple", "strength", "uniform(0, 2)", false}, {"kerple", "rate", "uniform(0, 1)", false},
           {"kerple(form=power)", "exponent", "uniform(0, 2)", false},
           {"kerple(decay=yes)", "rate", "uniform(0, 1)", true},
           {"kerple(form=power, decay=yes)", "exponent", "uniform(0, 2)", true},
           {"shaw(clip=40)", "value_table", "uniform(-0.203419, 0.203419)", true},  // sqrt(6 / (81 + 64))
           {"fire", "distance_scale", "constant(0.1)", false}, {"fire(decay=yes)", "threshold_scale", "ones", true},
           {"relative", "table", "normal(0, 0.125)", true}, {"absolute", "table", "normal(0, 0.02)", true},
           {"absolute(init=dim)", "table", "normal(0, 0.0625)", true},
           {"absolute(init=haiku)", "table", "truncated_normal(0, 1)", true},
           {"transformer_xl(decay=yes)", "position_bias", "normal(0, 0.02)", true},
           {"transformer_xl", "relative_projection", "uniform(-0.0625, 0.0625)", true},
           {"transformer_xl(init=haiku)", "relative_projection", "truncated_normal(0, 0.0625)", true},
           {"transformer_xl(init=0.02)", "relative_projection", "normal(0, 0.02)", true},
           {"dape(alibi)", "hidden.weight", "uniform(-0.353553, 0.353553)", true},  // 1 / sqrt(8)
           {"dape(alibi, form=add_residual)", "hidden.bias", "uniform(-0.5, 0.5)", false},
           {"cdape(rope, kernel=5, width=3)", "hidden.bias", "uniform(-0.223607, 0.223607)", false},   // 1 / sqrt(4 5)
           {"cdape(rope, kernel=5, width=3)", "output.weight", "uniform(-0.258199, 0.258199)", true},  // 1 / sqrt(3 5)
           {"cope_mlp", "output.weight", "uniform(-0.125, 0.125)", true}}) {
    CAPTURE(row.scheme);
    const Bare scheme(row.scheme, 4, 64, 9);
    const auto all = scheme.root().parameters();
    const auto found = std::ranges::find(all, std::string(row.parameter), &Module::Parameter::path);
    REQUIRE(found != all.end());
    CHECK(found->init.text() == row.init);
    CHECK(found->decays == row.decays);
  }
}

TEST_CASE("a table is of a layer, or shared by all") {
  for (const char* scheme : {"kerple", "cope", "t5", "relative"}) {
    const std::string name = std::string(scheme) == "kerple" ? "strength" : "table";
    const auto has = [&](const std::string& options, const std::string& path) {
      return std::ranges::count(paths_of(*random_decoder(small(scheme + options))), path) == 1;
    };
    CHECK(has("(table=per_layer)", "blocks.1.attention.position." + name));
    CHECK(has("(table=shared)", "position." + name));
  }
}

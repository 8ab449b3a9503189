// Properties of schemes of distances and of rotations: options, 16 bits, initial parameters, refusals. Worked numbers:
// worked/relative.cpp.
#include "autograd/inspect/capture.h"
#include "autograd/ops.h"
#include "nn/training/optim.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

// Returns the bias that a scheme adds to the scores, [b h i j], masked entries 0.
Tensor added(const Bare& scheme, const AttendInputs& inputs) {
  return (scheme.logits(inputs) - Bare("none").logits(inputs)).detach();
}

double at(const Tensor& x, index_t head, index_t i, index_t j) { return x.at({0, head, i, j}); }

AttendInputs shifted(AttendInputs inputs, double by) {
  Positions& positions = inputs.sequence.positions;
  positions.query = positions.query + by, positions.key = positions.key + by;
  return inputs;
}

// q and k [1 1 t d] after a scheme's rotation at positions from `first` on.
std::pair<Tensor, Tensor> rotated(const std::string& text, Tensor q, Tensor k, double first) {
  AttendContext context;
  static_cast<Sequence&>(context) = Sequence::run(q.size(2));
  context.positions.query = context.positions.key = context.positions.query + first;
  const auto scheme = parse_schemes(text)[0].make({q.size(3), 1, q.size(2)});
  dynamic_cast<const RotatesQueryKey&>(*scheme).rotate(q, k, context);
  return {q, k};
}

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

TEST_CASE("RoPE: a width below the head's leaves the other dims, and the base sets the slow pairs") {
  const Tensor q = normal({1, 1, 6, 8}, 1), k = normal({1, 1, 6, 8}, 2);
  const auto [pq, pk] = rotated("rope(width=4)", q, k, 0);
  CHECK(same_bits(slice(pq, 3, 4, 8), slice(q, 3, 4, 8)));
  const auto [nq, nk] = rotated("rope", slice(q, 3, 0, 4), slice(k, 3, 0, 4), 0);
  CHECK(distance(slice(pq, 3, 0, 4), nq) < 1e-15);  // frequencies come from the rotated width
  CHECK(distance(slice(pk, 3, 0, 4), nk) < 1e-15);
  const Tensor bq = rotated("rope(base=100, width=4)", q, k, 0).first;
  for (index_t t = 0; t < 6; ++t) {  // pair 1 of width 4: base^(-1/2) = 1/10
    const double angle = static_cast<double>(t) / 10, a = at(q, 0, t, 1), b = at(q, 0, t, 3);
    CHECK(std::fabs(at(bq, 0, t, 1) - (a * std::cos(angle) - b * std::sin(angle))) < 1e-15);
    CHECK(std::fabs(at(bq, 0, t, 3) - (b * std::cos(angle) + a * std::sin(angle))) < 1e-15);
  }
  const Tensor one = Tensor::of({1, 0}, {1, 1, 1, 2}, DType::f64);
  CHECK(distance(rotated("rope", one, one, 1e6).first,
            Tensor::of({std::cos(1e6), std::sin(1e6)}, {1, 1, 1, 2}, DType::f64)) < 1e-15);
}

TEST_CASE("with all parameters at 0, or put inside their bounds from there, biases and gradients are finite") {
  for (const std::string text : {"kerple", "kerple(form=power)", "fire(width=4)", "t5", "alibi"}) {
    for (const double value : {0.0, -1.0}) {
      CAPTURE(text);
      CAPTURE(value);
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

TEST_CASE("interpolation and YaRN by factor 1 are RoPE; dynamic YaRN is, up to its original length") {
  const AttendInputs inputs = random_inputs(9);
  const Tensor rope = Bare("rope").logits(inputs).detach();
  for (const std::string text : {"interpolated(rope, factor=1)", "yarn(factor=1)", "yarn(dynamic=yes, original=9)",
           "yarn(dynamic=yes, original=30)", "rope(scaling=dynamic, factor=2, original=30)"}) {
    CAPTURE(text);
    CHECK(distance(Bare(text).logits(inputs).detach(), rope) < 1e-13);
  }
  CHECK(distance(Bare("yarn(dynamic=yes, original=8)").logits(inputs).detach(), rope) > 1e-3);
  // The run's dynamic factor equals a fixed factor for its length.
  CHECK(distance(Bare("yarn(dynamic=yes, original=6)").logits(inputs).detach(),
            Bare("yarn(original=6, factor=1.5)").logits(inputs).detach()) < 1e-13);
}

TEST_CASE("dynamic YaRN's factor counts tokens, whatever their positions") {
  const AttendInputs inputs = random_inputs(9);
  const Tensor there = Bare("yarn(dynamic=yes, original=4)").logits(inputs).detach();
  CHECK(distance(Bare("shifted(yarn(dynamic=yes, original=4), by=50)").logits(inputs).detach(), there) < 1e-12);
  CHECK(distance(Bare("yarn(dynamic=yes, original=4)").logits(shifted(inputs, 50)).detach(), there) < 1e-12);
  CHECK(distance(Bare("randomised(yarn(dynamic=yes, original=4), length=99)").logits(inputs).detach(),
            Bare("randomised(yarn(factor=2.25, original=4), length=99)").logits(inputs).detach()) == 0);
  CHECK(parse_schemes("yarn(dynamic=yes)")[0].make({8, 2, 9})->claims().shift_invariant);
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
  const Tensor drawn = Bare("randomised(alibi, length=64)").logits(inputs).detach();
  for (const char* text : {"randomised(interpolated(alibi, factor=4), length=64)",
           "interpolated(randomised(alibi, length=64), factor=4)"}) {
    const AttendInputs& same = inputs;
    const Tensor divided = Bare(text).logits(same).detach();
    CHECK(at(divided, 0, 5, 5) == 0);
    CHECK(at(divided, 0, 5, 4) < 0);
    for (index_t i = 0; i < 13; ++i) CHECK(at(divided, 0, i, 0) == at(divided, 0, 12, 12 - i));
  }
  CHECK(distance(Bare("shifted(interpolated(alibi, factor=4), by=3)").logits(inputs).detach() * 4.0,
            Bare("alibi").logits(inputs).detach()) == 0);
  CHECK(at(drawn, 0, 5, 4) <= at(Bare("alibi").logits(inputs).detach(), 0, 5, 4));
}

TEST_CASE("Transformer-XL's probes: content_logit is (q + u).k / sqrt(d), content_bias_logit what u adds") {
  const AttendInputs inputs = random_inputs(7);
  const Bare scheme("transformer_xl");
  const Tensor plain = scheme.logits(inputs).detach();
  const Capture capture("*");
  CHECK(distance(scheme.logits(inputs).detach(), plain) == 0);  // a capture changes nothing
  const auto value_of = [&](const char* name) {
    for (const std::string& full : capture.names())
      if (("." + full).ends_with(std::string(".") + name)) return capture[full].value();
    return Tensor();
  };
  const Tensor u = reshape(scheme["content_bias"], {1, 2, 1, 4});
  const Tensor content = value_of("content_logit");
  CHECK(distance(content, matmul(inputs.query + u, transpose(inputs.key), 0.5).detach()) < 1e-13);
  CHECK(distance(content - value_of("scores"), expand(value_of("content_bias_logit"), content.shape())) < 1e-13);
  const Tensor sum = masked(content + value_of("position_logit"), inputs.sequence.mask());
  CHECK(distance(sum, plain) < 1e-13);
}

TEST_CASE("YaRN of some dims leaves the others as they are") {
  Tensor q = normal({1, 2, 9, 4}, 1), k = q;
  const Tensor before = q;
  AttendContext context;
  static_cast<Sequence&>(context) = Sequence::run(9);
  Bare("yarn(width=2)").stages().rotates.at(0).scheme->rotate(q, k, context);
  CHECK(distance(slice(q, 3, 2, 4), slice(before, 3, 2, 4)) == 0);
  const double magnitude = 0.1 * std::log(4.0) + 1;
  CHECK(distance(sum(square(slice(q, 3, 0, 2)), {3}),
            sum(square(slice(before, 3, 0, 2)), {3}) * (magnitude * magnitude)) < 1e-13);
}

TEST_CASE("dynamic YaRN: each sequence has its own factor, and a decoded row is the last one of its run") {
  const Bare scheme("yarn(dynamic=yes, original=4)");
  for (const bool left : {true, false}) {
    const AttendInputs both = random_inputs(9, Sequence::padded(present_but(9, 3, left)), 2);
    const index_t begin = left ? 3 : 0, end = begin + 6;
    AttendInputs second = random_inputs(6);
    second.query = slice(slice(both.query, 0, 1, 2), 2, begin, end),
    second.key = slice(slice(both.key, 0, 1, 2), 2, begin, end);
    const Tensor in_batch = slice(slice(slice(scheme.logits(both), 0, 1, 2), 2, begin, end), 3, begin, end);
    CHECK(distance(contiguous(in_batch).detach(), scheme.logits(second).detach()) < 1e-13);
  }
  const auto model = random_decoder(small("yarn(dynamic=yes, original=4)"));
  const Tensor tokens = random_tokens(1, 7, 5);
  Decoding decoding(*model, 12);
  for (index_t t = 0; t < 7; ++t) {
    const Tensor row = decoding(raw::slice(tokens, 1, t, t + 1)), run = (*model)(raw::slice(tokens, 1, 0, t + 1));
    CHECK(distance(row, slice(run, 1, t, t + 1).detach()) < 1e-12);
  }
  CHECK(!parse_schemes("yarn(dynamic=yes)")[0].make({8, 2, 9})->claims().prefix_consistent);
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

TEST_CASE("FIRE: Lambda is an absolute value, and up to the threshold rows do not depend on their position") {
  const Bare fire("fire(width=4, init_length=6)");
  fire.fill("distance_scale", 0.1), fire.fill("threshold_scale", 1);
  const Tensor positive = added(fire, random_inputs(12));
  fire.fill("threshold_scale", -1);
  const Tensor b = added(fire, random_inputs(12));
  CHECK(distance(positive, b) == 0);
  CHECK(std::fabs(at(b, 0, 6, 3) - at(b, 0, 3, 0)) < 1e-13);
  CHECK(std::fabs(at(b, 0, 11, 8) - at(b, 0, 3, 0)) > 1e-6);
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

TEST_CASE("initial parameters of the schemes of distances") {
  const auto made = [](const std::string& text) {
    auto scheme = parse_schemes(text)[0].make({4096, 1024, 9});
    scheme->initialise(1);
    return scheme;
  };
  const auto range = [](const Tensor& x) {
    const std::vector<double> all = x.to_vector();
    const auto [low, high] = std::minmax_element(all.begin(), all.end());
    return std::pair(*low, *high);
  };
  const auto [low, high] = range(parameter(*made("kerple"), "rate"));
  CHECK(low == doctest::Approx(0.01));  // some of 1024 draws from [0, 1) are clamped to the bound
  CHECK(high < 1);
  CHECK(range(parameter(*made("kerple(form=power)"), "exponent")).second > 1.9);
  CHECK(range(parameter(*made("kerple"), "strength")).second > 1.9);
  CHECK(range(parameter(*made("kerple(form=power)"), "strength")).second < 1);
  const auto shaw = parse_schemes("shaw(clip=40)")[0].make({512, 4, 9});
  shaw->initialise(1);
  const double limit = std::sqrt(6.0 / (81 + 128));
  CHECK(range(parameter(*shaw, "key_table")).second == doctest::Approx(limit).epsilon(0.01));
  CHECK(range(parameter(*shaw, "value_table")).first == doctest::Approx(-limit).epsilon(0.01));
  CHECK(parameter(*made("relative"), "table").shape() == Shape{9, 4});
  CHECK(parameter(*made("fire"), "distance_scale").item() == doctest::Approx(0.1));
  CHECK(parameter(*made("fire"), "threshold_scale").item() == 1);
}

TEST_CASE("initial deviations: fixed, by the model's dim, of other libraries") {
  const auto deviation = [](const std::string& text, const char* name) {
    const auto scheme = parse_schemes(text)[0].make({256, 4, 64});
    scheme->initialise(1);
    const Tensor x = parameter(*scheme, name);
    return std::sqrt(mean(x * x).item());
  };
  CHECK(deviation("absolute", "table") == doctest::Approx(0.02).epsilon(0.03));
  CHECK(deviation("absolute(init=dim)", "table") == doctest::Approx(1.0 / 16).epsilon(0.03));
  CHECK(deviation("absolute(init=haiku)", "table") == doctest::Approx(0.88).epsilon(0.03));  // cut at two deviations
  CHECK(deviation("transformer_xl", "relative_projection") == doctest::Approx(1 / (16 * std::sqrt(3))).epsilon(0.03));
  CHECK(deviation("transformer_xl(init=haiku)", "relative_projection") == doctest::Approx(0.88 / 16).epsilon(0.03));
  CHECK(deviation("transformer_xl(init=0.02)", "relative_projection") == doctest::Approx(0.02).epsilon(0.03));
}

TEST_CASE("FIRE: init_length=0 is half the training length") {
  const AttendInputs inputs = random_inputs(12);
  CHECK(distance(added(Bare("fire(width=4, init_length=0)"), inputs),
            added(Bare("fire(width=4, init_length=6)"), inputs)) == 0);
}

TEST_CASE("weight decay shrinks the numbers of a bias with decay=yes alone") {
  for (const std::string text : {"kerple(", "kerple(form=power, ", "fire(", "transformer_xl("}) {
    for (const std::string choice : {"no", "yes"}) {
      const auto scheme = parse_schemes(text + "decay=" + choice + ")")[0].make({8, 2, 9});
      scheme->initialise(1);
      std::vector<Tensor> before;
      Tensor loss = Tensor::zeros({}, DType::f32);
      for (const Tensor& x : parameters_of(*scheme)) before.push_back(x.detach() * 1.0), loss = loss + sum(x * 0.0);
      backward(loss);
      Adam(*scheme, {.weight_decay = 0.5}).step(0.1);
      for (std::size_t k = 0; k < 2; ++k) {  // registered first: r1, r2; c, lambda; u, w
        const std::string path = text + choice + " " + paths_of(*scheme)[k];
        CAPTURE(path);
        CHECK(distance(parameters_of(*scheme)[k], before[k] * (choice == "yes" ? 0.95 : 1)) < 1e-7);
      }
    }
  }
}

TEST_CASE("KERPLE's table is of a layer, or shared by all") {
  const auto at = [](const std::string& text) { return paths_of(*random_decoder(small(text))); };
  const auto has = [](const std::vector<std::string>& all, const std::string& path) {
    return std::ranges::count(all, path) == 1;
  };
  CHECK(has(at("kerple"), "blocks.1.attention.position.strength"));
  CHECK(has(at("kerple(table=shared)"), "position.strength"));
}

TEST_CASE("schemes of distances: refusals and their messages") {
  const auto refusal = [](const std::string& text, const SchemeSizes& sizes) {
    return message([&] {
      SchemeList list(parse_schemes(text), sizes, SchemeList::Owner::layer),
          shared(parse_schemes(text), sizes, SchemeList::Owner::model);
      (void)Stages::of(list.all());
    });
  };
  const SchemeSizes sizes{8, 2, 9};
  CHECK(has(refusal("t5(max_distance=16, table=per_layer)", sizes), "max_distance"));
  CHECK(has(refusal("sandwich(dim=7)", sizes), "even number"));
  CHECK(has(refusal("transformer_xl", {9, 3, 9}), "model dim 9"));
  CHECK(has(refusal("transformer_xl + rope", sizes), "transformer_xl"));
  CHECK(has(refusal("rope + yarn", sizes), "rotates"));
  CHECK(refusal("yarn(dynamic=yes, factor=2)", sizes).find("factor given; it has no effect with dynamic=yes") !=
        std::string::npos);
  CHECK(has(refusal("yarn(beta_fast=1, beta_slow=2)", sizes), "beta_fast > beta_slow"));
  CHECK(has(refusal("yarn(width=3)", sizes), "yarn: width 3"));
  CHECK(has(refusal("yarn", {8, 2, 0}), "yarn"));
  CHECK(has(refusal("relative(table=per_layer)", {8, 2, 0}), "relative"));
  AttendInputs between = random_inputs(4);
  between.sequence.positions.query = between.sequence.positions.query * 0.5;
  for (const std::string text : {"shaw", "relative"}) {
    CHECK(has(refusal("interpolated(" + text + ", factor=2)", sizes), "whole positions"));
    CHECK(has(message([&] { (void)Bare(text).logits(between); }), "whole distances"));
  }
  CHECK(has(message([&] { (void)Bare("relative").logits(random_inputs(4, Sequence::run(4, false))); }), "use shaw"));
}

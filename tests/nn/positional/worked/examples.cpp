// Worked numbers of every scheme: values, intermediates and gradients, by every executor. examples.json was made by an
// independent implementation in PyTorch, later.json, of the schemes that came after the papers, by tests/torch/test_worked.py.
#include "examples/whence/verify/probe_run.h"
#include "nn/attention/plan.h"
#include "nn/positional/alibi_slopes.h"
#include "nn/scheme_registry.h"
#include "tests/support/json.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;
using nlohmann::json;

namespace {

json worked(const std::string& file) {
  return json_of(text_of(source_folder() + "/tests/nn/positional/worked/" + file + ".json"));
}

NamedTensors tensors_of(const json& entries) {
  NamedTensors all;
  for (const auto& [name, entry] : entries.items())
    all.emplace_back(name, Tensor::of(entry.at("data").get<std::vector<double>>(),
                               Shape(entry.at("shape").get<std::vector<index_t>>()), DType::f64));
  return all;
}

void check_example(const json& each) {
  ProbeInput input = probe_input_of("", tensors_of(each.at("given")), each.at("scheme"), DType::f64, {});
  CHECK(input.drawn.empty());
  Sequence& sequence = input.given.sequence;
  sequence.causal = !each.contains("bidirectional");
  const bool of_logits = input.cotangent_logits.defined();
  for (const Executor executor : all_executors) {
    CAPTURE(std::string(name_of(executor)));
    if (!refusal_of(executor, input.scheme->stages()).empty()) continue;
    const bool all = executor == Executor::reference;  // the others show no pairs, and hold no logits
    if (!all) input.cotangent_logits = {};
    std::map<std::string, Tensor> made;
    for (const auto& [name, tensor] : run_probe(input, executor).tensors) made[name] = tensor;
    for (const auto& expected : tensors_of(each.at("expected"))) {
      const std::string& name = expected.first;
      const Tensor& wanted = expected.second;
      CAPTURE(name);
      if (!all && (!made.contains(name) || (of_logits && name.starts_with("gradient.")))) continue;
      REQUIRE(made.contains(name));
      const bool by_pair = wanted.rank() == 4 && wanted.size(2) == sequence.rows && wanted.size(3) == sequence.keys &&
                           (name == "logits" || !(wanted.shape() == input.given.query.shape()));
      const auto visible = [&](const Tensor& x) { return by_pair ? sequence.masked(x) : x; };
      CHECK(distance(visible(expand(made[name], wanted.shape())), visible(wanted)) < 1e-12);
    }
  }
}

}  // namespace

TEST_CASE("worked examples: the papers' schemes, and those that came after them") {
  for (const auto& [file, count] : {std::pair{"examples", 74u}, {"later", 41u}}) {
    const json all = worked(file).at("examples");
    CHECK(all.size() >= count);
    for (const json& each : all) {
      CAPTURE(each.value("name", each.at("scheme")));
      check_example(each);
    }
  }
}

TEST_CASE("worked examples: rotations' speeds and magnitudes, those of transformers' configurations among them") {
  for (const char* file : {"examples", "later"}) {
    for (const json& each : worked(file).at("rotations")) {
      const std::string text = each.at("scheme");
      CAPTURE(text);
      const index_t head_dim = each.at("head dim"), tokens = each.at("tokens"), pairs = head_dim / 2;
      const auto scheme = parse_schemes(text)[0].make({head_dim, 1, tokens});
      // At position 1 a pair (1, 0) becomes magnitude (cos theta, sin theta).
      const Shape half{1, 1, 1, pairs};
      Tensor q = concat_along(3, {Tensor::ones(half, DType::f64), Tensor::zeros(half, DType::f64)}), k = q;
      AttendContext context;
      static_cast<Sequence&>(context) = Sequence::run(tokens);
      context.positions.query = context.positions.key = Tensor::ones({1}, DType::f64);
      context.positions.tokens = {tokens};
      const Stages stages = Stages::of({scheme.get()});
      stages.rotates.at(0).scheme->rotate(q, k, stages.rotates.at(0).at(context));
      REQUIRE(std::ssize(each.at("theta")) == pairs);
      for (index_t m = 0; m < pairs; ++m) {
        const double cosine = q.at({0, 0, 0, m}), sine = q.at({0, 0, 0, m + pairs}), theta = each.at("theta").at(m);
        CHECK(std::fabs(std::atan2(sine, cosine) - theta) <= 1e-14 + 1e-12 * theta);
        CHECK(std::hypot(sine, cosine) == doctest::Approx(each.at("magnitude").get<double>()).epsilon(1e-14));
      }
    }
  }
}

TEST_CASE("worked examples: ALiBi's slopes, and T5's buckets far beyond an example's length") {
  const json file = worked("examples");
  for (const json& slopes : file.at("alibi_slopes")) {
    const std::vector<double> found = alibi_slopes(std::ssize(slopes));
    for (std::size_t h = 0; h < found.size(); ++h) CHECK(std::fabs(found[h] - slopes[h].get<double>()) < 1e-15);
  }
  const auto t5 = parse_schemes("t5")[0].make({4, 1, 8});
  t5->to(DType::f64);
  raw::copy_into(reshape(Tensor::arange(32, DType::f64), {32, 1}), parameter(*t5, "table"));  // bucket n adds n
  for (const bool causal : {true, false}) {
    const json& buckets = file.at(causal ? "t5_bucket_32_128_causal" : "t5_bucket_32_128_bidirectional_relpos");
    CHECK(buckets.size() > 15);
    for (const auto& [steps, bucket] : buckets.items()) {  // i - j; in the second table j - i
      AttendContext at;
      at.causal = causal, at.content_scores = Tensor::zeros({1, 1, 1, 1}, DType::f64);
      at.positions.query = Tensor::zeros({1}, DType::f64);
      at.positions.key = Tensor::full({1}, std::stod(steps) * (causal ? -1 : 1), DType::f64);
      CHECK(dynamic_cast<const BiasesScores&>(*t5).bias(at).item() == bucket.get<double>());
    }
  }
}

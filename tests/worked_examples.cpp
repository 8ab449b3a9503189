// The worked numbers of every scheme: logits, patterns, outputs, named intermediates and all gradients of two losses, in f64.
// tests/data/worked_examples.json was made by PyTorch; each entry names its shapes. Masked logits are unspecified and not compared.
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "autograd/gradcheck.h"
#include "autograd/probe.h"
#include "nn/executor.h"
#include "nn/scheme.h"
#include "tests/close.h"

using namespace whence;
using namespace whence::test;
using nlohmann::json;

namespace {

constexpr double tolerance_of_numbers = 1e-12;

const json& file() {
  static const json parsed = json::parse(std::ifstream(std::string(WHENCE_TEST_DATA) + "/worked_examples.json"));
  return parsed;
}

const json& example(const std::string& name) {
  for (const json& each : file().at("examples")) {
    if (each.at("name") == name) return each;
  }
  FAIL("no worked example is called " << name);
  return file();
}

Tensor tensor(const json& entry, DType dtype = DType::f64) {
  return Tensor::of(entry.at("data").get<std::vector<double>>(), Shape(entry.at("shape").get<std::vector<index_t>>()), dtype);
}

// How an example is run here: the scheme's text, how many of the file's intermediates our probes show, whether the attention is causal.
struct Setting {
  std::string name, scheme;
  int intermediates = 0;
  bool causal = true;
  bool kinked = false;  // stands on points without a derivative: central differences say nothing there
};

const Setting settings[] = {{"nope", "none"},
                            {"alibi_causal", "alibi", 1},
                            {"alibi_bidirectional_ruoss", "alibi", 1, false},
                            {"rope_half", "rope"},
                            {"rope_interleaved", "rope(layout=interleaved)"},
                            {"cope_listing1", "cope(p_max=2)", 3},
                            {"cope_ram_default", "cope(p_max=2, z_scale=head)", 3},
                            {"cope_noclamp", "cope(p_max=4)", 3},
                            {"cope_sep_keys", "cope(p_max=2, gates=separate_keys)", 3},
                            {"cope_val_gates", "cope(p_max=2, gates=values)", 3},
                            {"cope_saturated", "cope(p_max=3)", 3, true, true},
                            {"cope_shared_two_layers", "cope(p_max=2)"},
                            {"cope_plus_rope", "cope(p_max=2) + rope", 2},
                            {"cope_plus_rope_zrot", "cope(p_max=2, z_from=rotated) + rope", 2}};

// The paper's letter of a parameter, by the end of our path.
const std::map<std::string, std::string> letters{{"table", "e"}};

// One example: its inputs and parameters as leaves, and the scheme that they belong to.
class Example {
 public:
  explicit Example(const Setting& setting) : setting_(setting), json_(example(setting.name)), specs_(parse_schemes(setting.scheme)) {
    for (const auto& [name, entry] : json_.at("inputs").items()) inputs_.push_back({name, requires_grad(tensor(entry))});
    const Shape q = input("q").shape();
    schemes_ = std::make_unique<SchemeList>(specs_, SchemeSizes{q[1] * q[3], q[1], q[2]}, true);
    schemes_->root().to(DType::f64);
    for (const Module::Parameter& parameter : schemes_->root().parameters()) set(parameter);
    for (const PositionalScheme* scheme : schemes_->all()) stages_.add(*scheme);
  }

  const json& expected() const { return json_; }
  const std::vector<Named>& leaves() const { return inputs_; }
  const Stages& stages() const { return stages_; }
  Tensor mask() const { return tensor(json_.at("mask"), DType::boolean); }
  Tensor input(const std::string& name) const {
    for (const Named& each : inputs_) {
      if (each.name == name) return each.tensor;
    }
    return {};
  }

  struct Result {
    Tensor logits, pattern, output;
  };
  Result run() const {
    Result result = attend(input("q"), input("k"));
    if (!input("q1").defined()) return result;
    // Two layers that share the table: the example adds their logits.
    result.logits = result.logits + attend(input("q1"), input("k1")).logits;
    result.pattern = softmax(result.logits, mask());
    result.output = matmul(result.pattern, input("v"));
    return result;
  }

 private:
  // Parameters that the example gives are set. Those of the separate gate keys make them the input itself.
  void set(const Module::Parameter& parameter) {
    const std::string word = parameter.path.substr(parameter.path.rfind('.') + 1);
    if (const auto letter = letters.find(word); letter != letters.end()) {
      raw::copy_into(tensor(json_.at("params").at(letter->second)), parameter.tensor);
      inputs_.push_back({letter->second, parameter.tensor});
      return;
    }
    REQUIRE(parameter.path.find("gate_key") != std::string::npos);
    Tensor identity = Tensor::zeros(parameter.tensor.shape(), DType::f64);
    for (index_t k = 0; word == "weight" && k < identity.size(0); ++k) identity.data<double>()[k * identity.size(1) + k] = 1;
    raw::copy_into(identity, parameter.tensor);
  }

  Result attend(const Tensor& q, const Tensor& k) const {
    Result result;
    Capture capture;  // edits hand out the graph's own tensors
    const auto keep_in = [](Tensor& slot) { return [&slot](const Tensor& value) { return slot = value; }; };
    capture.edit("logits", keep_in(result.logits));
    capture.edit("pattern", keep_in(result.pattern));
    Tensor x;
    if (const Tensor gate_keys = input("kg"); gate_keys.defined()) {
      x = reshape(permute(gate_keys, {0, 2, 1, 3}), {gate_keys.size(0), gate_keys.size(2), -1});  // [b t c]
    }
    result.output = reference_executor().attend({x, q, k, input("v"), mask(), Positions::range(q.size(2)), setting_.causal}, stages_);
    return result;
  }

  const Setting& setting_;
  const json& json_;
  std::vector<SchemeSpec> specs_;
  std::vector<Named> inputs_;
  std::unique_ptr<SchemeList> schemes_;
  Stages stages_;
};

// Gradients of `loss` by all inputs and parameters against those of the file.
void check_gradients(const Tensor& loss, const json& expected, const std::vector<Named>& leaves) {
  CHECK(expected.size() == leaves.size());  // no gradient of the file is forgotten
  std::vector<Tensor> handles;
  for (const Named& each : leaves) handles.push_back(each.tensor);
  const std::vector<Tensor> found = grad(loss, {}, handles, {.allow_unused = true});
  for (std::size_t k = 0; k < leaves.size(); ++k) {
    CAPTURE(leaves[k].name);
    const Tensor wanted = tensor(expected.at(leaves[k].name));
    CHECK(distance(found[k].defined() ? found[k] : Tensor::zeros(wanted.shape(), DType::f64), wanted) < tolerance_of_numbers);
  }
}

// Names of the file's intermediates, and of our probes.
const std::map<std::string, std::string> probes{
    {"gates", "gates"}, {"pos", "positions"}, {"cope_bias", "position_logit"}, {"bias", "bias"}};

void check_intermediates(const Example& it, const Setting& setting) {
  const Capture capture("*");
  (void)it.run();
  int compared = 0;
  for (const auto& [name, entry] : it.expected().at("outputs").items()) {
    const auto probe = probes.find(name);
    if (probe == probes.end()) continue;
    // The file's cope_bias is q.e before its scale, our probe shows what is added to the scores.
    const bool scaled = name == "cope_bias" && setting.scheme.find("z_scale=head") != std::string::npos;
    const double scale = scaled ? 1 / std::sqrt(static_cast<double>(it.input("q").size(3))) : 1;
    for (const std::string& seen : capture.names()) {
      if (seen != probe->second && !seen.ends_with("." + probe->second)) continue;
      CAPTURE(seen);
      const Tensor wanted = tensor(entry) * scale, found = expand(capture[seen].value(), wanted.shape());
      CHECK(distance(keep(found, it.mask()), keep(wanted, it.mask())) < tolerance_of_numbers);
      ++compared;
    }
  }
  CHECK(compared == setting.intermediates);
}

}  // namespace

TEST_CASE("worked examples of attention: values, intermediates and gradients") {
  for (const Setting& setting : settings) {
    CAPTURE(setting.name);
    const Example it(setting);
    const json& expected = it.expected();
    const Example::Result result = it.run();
    const json& outputs = expected.at("outputs");
    CHECK(distance(keep(result.logits, it.mask()), keep(tensor(outputs.at("logits_premask")), it.mask())) < tolerance_of_numbers);
    CHECK(distance(result.pattern, tensor(outputs.at("probs"))) < tolerance_of_numbers);
    CHECK(distance(result.output, tensor(outputs.at("attn_out"))) < tolerance_of_numbers);
    const Tensor loss = sum(result.logits * tensor(expected.at("W"))), loss_of_output = sum(result.output * tensor(expected.at("W_out")));
    CHECK(std::fabs(loss.item() - expected.at("loss").get<double>()) < tolerance_of_numbers);
    CHECK(std::fabs(loss_of_output.item() - expected.at("loss_attn_out").get<double>()) < tolerance_of_numbers);
    check_gradients(loss, expected.at("grads"), it.leaves());
    check_gradients(loss_of_output, expected.at("grads_attn_out"), it.leaves());
    check_intermediates(it, setting);
  }
}

TEST_CASE("worked examples: gradcheck of logits and outputs by every input and parameter") {
  for (const Setting& setting : settings) {
    CAPTURE(setting.name);
    const Example it(setting);
    const GradcheckOptions options{.differences = !setting.kinked};
    const GradcheckReport of_output = gradcheck([&] { return it.run().output; }, it.leaves(), options);
    CHECK_MESSAGE(of_output.ok(), of_output.text());
    const GradcheckReport of_logits = gradcheck([&] { return keep(it.run().logits, it.mask()); }, it.leaves(), options);
    CHECK_MESSAGE(of_logits.ok(), of_logits.text());
  }
}

TEST_CASE("worked examples of rotation: the rotated queries and keys") {
  for (const Setting& setting : settings) {
    if (!setting.name.starts_with("rope_")) continue;
    CAPTURE(setting.name);
    const Example it(setting);
    Tensor q = it.input("q"), k = it.input("k");
    REQUIRE(it.stages().rotates.size() == 1);
    it.stages().rotates[0].scheme->rotate(q, k, Positions::range(q.size(2)));
    CHECK(distance(q, tensor(it.expected().at("outputs").at("q_rot"))) < tolerance_of_numbers);
    CHECK(distance(k, tensor(it.expected().at("outputs").at("k_rot"))) < tolerance_of_numbers);
  }
}

TEST_CASE("worked examples of positions that are added to the tokens") {
  const std::pair<std::string, std::string> embedded[] = {{"ape_learned", "absolute(rows=6)"},
                                                          {"ape_sinusoidal_interleaved", "sinusoidal"},
                                                          {"ape_sinusoidal_concat", "sinusoidal(layout=concat)"}};
  for (const auto& entry : embedded) {
    const std::string &name = entry.first, &text = entry.second;
    CAPTURE(name);
    const json& expected = example(name);
    const auto scheme = parse_schemes(text)[0].make({4, 1, 4});
    scheme->to(DType::f64);
    std::vector<Named> leaves{{"x", requires_grad(tensor(expected.at("inputs").at("x")))}};
    for (const Module::Parameter& parameter : scheme->parameters()) {
      raw::copy_into(tensor(expected.at("params").at("P")), parameter.tensor);
      leaves.push_back({"P", parameter.tensor});
    }
    const auto run = [&] { return dynamic_cast<const EmbedsTokens&>(*scheme).embed(leaves[0].tensor, Positions::range(4)); };
    const Tensor output = run();
    CHECK(distance(output, tensor(expected.at("outputs").at("out"))) < tolerance_of_numbers);
    if (expected.at("outputs").contains("table")) {
      CHECK(distance((output - leaves[0].tensor).detach(), reshape(tensor(expected.at("outputs").at("table")), {1, 4, 4})) <
            tolerance_of_numbers);
    }
    const Tensor loss = sum(output * tensor(expected.at("W")));
    CHECK(std::fabs(loss.item() - expected.at("loss").get<double>()) < tolerance_of_numbers);
    check_gradients(loss, expected.at("grads"), leaves);
    const GradcheckReport report = gradcheck(run, leaves);
    CHECK_MESSAGE(report.ok(), report.text());
  }
}

TEST_CASE("ALiBi's slopes for every number of heads in the table") {
  CHECK(file().at("alibi_slopes").size() == 10);
  for (const auto& entry : file().at("alibi_slopes").items()) {
    const std::string heads = entry.key();
    const json& slopes = entry.value();
    CAPTURE(heads);
    const index_t count = std::stoll(heads);
    const auto scheme = parse_schemes("alibi")[0].make({2 * count, count, 2});
    AttendContext at;
    at.positions = Positions::range(2);
    at.content_scores = Tensor::zeros({1, count, 2, 2}, DType::f64);
    const Tensor bias = dynamic_cast<const BiasesScores&>(*scheme).bias(at);  // -m_h at (i, j) = (1, 0)
    REQUIRE(bias.shape() == Shape{1, count, 2, 2});
    const Tensor found = select(select(select(bias, 0, 0), 1, 1), 1, 0) * -1.0;
    CHECK(distance(found, Tensor::of(slopes.get<std::vector<double>>(), {count}, DType::f64)) < 1e-15);
  }
}

// The worked numbers of every scheme and how they are checked: logits, patterns, outputs, named intermediates and all
// gradients of two losses, in f64. tests/nn/positional/worked/examples.json was made by PyTorch; its meta entry says how. Each
// worked_*.cpp lists its examples.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "autograd/check/gradcheck.h"
#include "autograd/inspect/probe.h"
#include "examples/whence/verify/bare_attention.h"
#include "tests/support/places.h"
#include "tests/support/tensors.h"

namespace whence::test {

using nlohmann::json;

constexpr double worked_tolerance = 1e-12;

inline const json& worked_file() {
  static const json parsed = json::parse(std::ifstream(source_folder() + "/tests/nn/positional/worked/examples.json"));
  return parsed;
}

inline const json& worked_json(const std::string& name) {
  for (const json& each : worked_file().at("examples"))
    if (each.at("name") == name) return each;
  FAIL("no worked example is called " << name);
  return worked_file();
}

inline Tensor worked_tensor(const json& entry, DType dtype = DType::f64) {
  return Tensor::of(
      entry.at("data").get<std::vector<double>>(), Shape(entry.at("shape").get<std::vector<index_t>>()), dtype);
}

// One of the file's intermediates and the probe (end of its name) that shows it; ours is the file's times `factor`.
struct Intermediate {
  std::string name, probe;
  double factor = 1;
};

// How an example of the file is run here. Every output of the file is compared unless it stands in `unseen`.
struct Setting {
  std::string name, scheme;  // of the example; the scheme's text
  // The file's letter of a parameter -> the end of our path, which in a sum begins with the scheme's name.
  std::map<std::string, std::string> letters = {};
  std::vector<Intermediate> intermediates = {};
  std::vector<std::string> unseen = {};  // outputs that no probe shows
  std::string identity = {};             // parameters whose path contains this make a linear layer the identity
  bool causal = true;
  bool kinked = false;         // stands on points without a derivative: central differences say nothing there
  bool exact_gradient = true;  // false: backward is on purpose not the derivative of forward
};

// The settings of all worked_*.cpp, by name: each file adds its own with a static object.
class WorkedFamily {
 public:
  explicit WorkedFamily(std::vector<Setting> settings) : settings_(std::move(settings)) {
    for (const Setting& setting : settings_) names().push_back(setting.name);
  }
  const std::vector<Setting>& settings() const { return settings_; }
  static std::vector<std::string>& names() {
    static std::vector<std::string> all;
    return all;
  }

 private:
  std::vector<Setting> settings_;
};

// One example: its inputs and parameters as leaves, and the schemes that they belong to.
class Example {
 public:
  explicit Example(const Setting& setting) : setting_(setting), json_(worked_json(setting.name)) {
    for (const auto& [name, entry] : json_.at("inputs").items())
      leaves_.push_back({name, requires_grad(worked_tensor(entry))});
    scheme_ = std::make_unique<BareAttention>(setting.scheme, sizes());
    for (const Module::Parameter& parameter : scheme_->root().parameters()) set(parameter);
    CHECK(leaves_.size() ==
          json_.at("inputs").size() + json_.at("params").size());  // no parameter of the file is forgotten
  }

  const Setting& setting() const { return setting_; }
  const json& expected() const { return json_; }
  const std::vector<Named>& leaves() const { return leaves_; }
  const Stages& stages() const { return scheme_->stages(); }
  bool embeds() const { return json_.at("inputs").contains("x"); }  // the scheme adds to tokens x
  bool has_two_layers() const {
    return json_.at("inputs").contains("q1");
  }  // which share one table; the example adds their logits
  Tensor mask() const { return worked_tensor(json_.at("mask"), DType::boolean); }
  Tensor input(const std::string& name) const {
    for (const Named& each : leaves_)
      if (each.name == name) return each.tensor;
    return {};
  }

  // Where the tokens stand: drawn positions or distances are the file's.
  Sequence sequence() const {
    const index_t length = embeds() ? input("x").size(1) : input("q").size(2);
    Sequence sequence = Sequence::run(length, setting_.causal);
    if (!embeds()) sequence.given_mask = mask();
    if (!json_.contains("int_inputs")) return sequence;
    const json& drawn = json_.at("int_inputs");
    if (drawn.contains("pos")) sequence.positions.query = sequence.positions.key = worked_tensor(drawn.at("pos"));
    if (drawn.contains("dist"))
      sequence.positions.distances = concat_along(0, {Tensor::zeros({1}, DType::f64), worked_tensor(drawn.at("dist"))});
    sequence.positions.length = json_.at("config").at("L").get<index_t>();
    return sequence;
  }

  // x with its positions
  Tensor embedded() const { return stages().embeds.at(0).scheme->embed(input("x"), sequence().positions); }

  using Result = BareAttention::Result;
  // By the reference executor, whose logits and patterns can be looked at.
  Result run() const {
    Result result = run(input("q"), input("k"));
    if (!has_two_layers()) return result;
    result.logits = result.logits + run(input("q1"), input("k1")).logits;
    result.pattern = softmax(result.logits, mask());
    result.output = matmul(result.pattern, input("v"));
    return result;
  }
  Tensor output(const Executor& executor) const { return executor.attend(inputs(input("q"), input("k")), stages()); }

 private:
  SchemeSizes sizes() const {
    if (embeds()) return {.dim = input("x").size(2), .heads = 1, .length = input("x").size(1)};
    const Shape q = input("q").shape();
    return {.dim = q[1] * q[3], .heads = q[1], .length = q[2]};
  }

  // Parameters that the example gives are set; those of a layer that it knows nothing of make this layer the identity.
  void set(const Module::Parameter& parameter) {
    CAPTURE(parameter.path);
    for (const auto& [letter, ending] : setting_.letters) {
      if (!("." + parameter.path).ends_with("." + ending)) continue;
      // The file and we may disagree about axes of one number: a 1x1 convolution is a linear layer.
      raw::copy_into(reshape(worked_tensor(json_.at("params").at(letter)), parameter.tensor.shape()), parameter.tensor);
      leaves_.push_back({letter, parameter.tensor});
      return;
    }
    REQUIRE(!setting_.identity.empty());
    REQUIRE(parameter.path.find(setting_.identity) != std::string::npos);
    Tensor identity = Tensor::zeros(parameter.tensor.shape(), DType::f64);
    for (index_t k = 0; identity.rank() == 2 && k < identity.size(0); ++k)
      identity.data<double>()[k * identity.size(1) + k] = 1;
    raw::copy_into(identity, parameter.tensor);
  }

  AttendInputs inputs(const Tensor& q, const Tensor& k) const {
    Tensor x;
    if (const Tensor gate_keys = input("kg"); gate_keys.defined())
      x = reshape(permute(gate_keys, {0, 2, 1, 3}), {gate_keys.size(0), gate_keys.size(2), -1});  // [b t c]
    return {.x = x, .query = q, .key = k, .value = input("v"), .sequence = sequence()};
  }

  Result run(const Tensor& q, const Tensor& k) const { return scheme_->run(inputs(q, k), reference_executor()); }

  const Setting& setting_;
  const json& json_;
  std::vector<Named> leaves_;
  std::unique_ptr<BareAttention> scheme_;
};

// Gradients of `loss` by all inputs and parameters against those of the file.
inline void check_gradients(const Tensor& loss, const json& expected, const std::vector<Named>& leaves) {
  CHECK(expected.size() == leaves.size());  // no gradient of the file is forgotten
  std::vector<Tensor> handles;
  for (const Named& each : leaves) handles.push_back(each.tensor);
  const std::vector<Tensor> found = grad(loss, {}, handles, {.allow_unused = true});
  for (std::size_t k = 0; k < leaves.size(); ++k) {
    CAPTURE(leaves[k].name);
    const Tensor wanted = reshape(worked_tensor(expected.at(leaves[k].name)), leaves[k].tensor.shape());
    CHECK(
        distance(found[k].defined() ? found[k] : Tensor::zeros(wanted.shape(), DType::f64), wanted) < worked_tolerance);
  }
}

inline void check_loss(const Tensor& loss, const json& expected) {
  CHECK(std::fabs(loss.item() - expected.get<double>()) < worked_tolerance);
}

// Masked logits are unspecified and not compared.
inline void check_reference(const Example& it) {
  const json &expected = it.expected(), &outputs = expected.at("outputs");
  const Example::Result result = it.run();
  CHECK(distance(masked(result.logits, it.mask()), masked(worked_tensor(outputs.at("logits_premask")), it.mask())) <
        worked_tolerance);
  CHECK(distance(result.pattern, worked_tensor(outputs.at("probs"))) < worked_tolerance);
  CHECK(distance(result.output, worked_tensor(outputs.at("attn_out"))) < worked_tolerance);
  const Tensor loss = sum(result.logits * worked_tensor(expected.at("W")));
  const Tensor loss_of_output = sum(result.output * worked_tensor(expected.at("W_out")));
  check_loss(loss, expected.at("loss"));
  check_loss(loss_of_output, expected.at("loss_attn_out"));
  check_gradients(loss, expected.at("grads"), it.leaves());
  check_gradients(loss_of_output, expected.at("grads_attn_out"), it.leaves());
}

// The sum of two layers' logits exists in the reference run only.
inline void check_executor(const Example& it, const Executor& executor) {
  if (it.has_two_layers()) return;
  CAPTURE(executor.name());
  REQUIRE(executor.refusal(it.stages()) == "");
  const json& expected = it.expected();
  const Tensor output = it.output(executor), loss = sum(output * worked_tensor(expected.at("W_out")));
  CHECK(distance(output, worked_tensor(expected.at("outputs").at("attn_out"))) < worked_tolerance);
  check_loss(loss, expected.at("loss_attn_out"));
  check_gradients(loss, expected.at("grads_attn_out"), it.leaves());
}

inline void check_intermediate(const Example& it, const Intermediate& wanted, const Capture& capture) {
  CAPTURE(wanted.name);
  bool found = false;
  for (const std::string& seen : capture.names()) {
    if (!("." + seen).ends_with("." + wanted.probe)) continue;
    found = true;
    const Tensor numbers = worked_tensor(it.expected().at("outputs").at(wanted.name)) * wanted.factor;
    const Tensor ours =
        expand(reshape(capture[seen].value(), numbers.rank() == 2 ? numbers.shape() : capture[seen].value().shape()),
            numbers.shape());
    const bool by_pair = numbers.rank() == 4 && numbers.size(2) == it.mask().size(0) &&
                         numbers.size(3) == it.mask().size(1) && wanted.name != "q_rot" && wanted.name != "k_rot";
    CHECK((by_pair ? distance(masked(ours, it.mask()), masked(numbers, it.mask())) : distance(ours, numbers)) <
          worked_tolerance);
  }
  CHECK_MESSAGE(found, "no probe's name ends with " << wanted.probe);
}

inline void check_intermediates(const Example& it) {
  const Capture capture("*");
  (void)it.run();
  for (const Intermediate& wanted : it.setting().intermediates) check_intermediate(it, wanted, capture);
  const auto known = [&](const std::string& name) {
    const Setting& setting = it.setting();
    return name == "logits_premask" || name == "probs" || name == "attn_out" ||
           std::count(setting.unseen.begin(), setting.unseen.end(), name) > 0 ||
           std::any_of(setting.intermediates.begin(), setting.intermediates.end(),
               [&](const auto& each) { return each.name == name; });
  };
  for (const auto& entry : it.expected().at("outputs").items()) {
    const std::string& name = entry.key();
    CHECK_MESSAGE(known(name), name << " of the file is neither compared nor declared unseen");
  }
}

inline void check_worked_gradcheck(const Example& it) {
  if (!it.setting().exact_gradient) return;
  const GradcheckOptions options{.differences = !it.setting().kinked};
  const auto check = [&](const std::function<Tensor()>& f) {
    const GradcheckReport report = gradcheck(f, it.leaves(), options);
    CHECK_MESSAGE(report.ok(), report.text());
  };
  if (it.embeds()) return check([&] { return it.embedded(); });
  check([&] { return it.run().output; });
  check([&] { return masked(it.run().logits, it.mask()); });
}

inline void check_embedding(const Example& it) {
  const json &expected = it.expected(), &outputs = expected.at("outputs");
  const Tensor output = it.embedded(), x = it.input("x");
  CHECK(distance(output, worked_tensor(outputs.at("out"))) < worked_tolerance);
  if (outputs.contains("table"))
    CHECK(distance((output - x).detach(), reshape(worked_tensor(outputs.at("table")), x.shape())) < worked_tolerance);
  const Tensor loss = sum(output * worked_tensor(expected.at("W")));
  check_loss(loss, expected.at("loss"));
  check_gradients(loss, expected.at("grads"), it.leaves());
}

// Everything that the file says about one example.
inline void check_worked(const Setting& setting) {
  CAPTURE(setting.name);
  const Example it(setting);
  if (it.embeds()) {
    check_embedding(it);
  } else {
    check_reference(it);
    check_executor(it, reference_executor());
    check_executor(it, strips_executor());
    check_intermediates(it);
  }
  check_worked_gradcheck(it);
}

}  // namespace whence::test

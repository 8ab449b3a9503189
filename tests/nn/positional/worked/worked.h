// Checks of the worked numbers of every scheme: logits, patterns, outputs, named intermediates and all gradients of two
// losses, in f64. examples.json was made by PyTorch; its meta entry says how. Each .cpp file in this folder lists its
// examples.
#pragma once

#include <map>

#include "autograd/check/gradcheck.h"
#include "autograd/inspect/capture.h"
#include "examples/whence/verify/bare_attention.h"
#include "nn/attention/plan.h"
#include "tests/support/json.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

namespace whence::test {

using nlohmann::json;

constexpr double worked_tolerance = 1e-12;

inline const json& worked_file() {
  static const json parsed = json_of(text_of(source_folder() + "/tests/nn/positional/worked/examples.json"));
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

// Settings of an example. Every output of the file is compared unless it is in `unseen`.
struct Setting {
  std::string name, scheme;  // of the example; the scheme's text
  // Maps the file's letter of a parameter to the end of our path, which in a sum begins with the scheme's name.
  std::map<std::string, std::string> letters = {};
  std::vector<Intermediate> intermediates = {};
  std::vector<std::string> unseen = {};  // outputs that no probe shows
  std::string identity = {};             // parameters whose path contains this make a linear layer the identity
  bool causal = true;
  bool kinked = false;         // at points without a derivative, where central differences are useless
  bool exact_gradient = true;  // false: backward is on purpose not the derivative of forward
};

inline Setting bidirectional(Setting setting) {
  setting.causal = false;
  return setting;
}
inline Setting kinked(Setting setting) {
  setting.kinked = true;
  return setting;
}

// The settings of one file, registered by a static object; the names of all are counted.
struct WorkedFamily {
  explicit WorkedFamily(std::vector<Setting> all) : settings(std::move(all)) {
    for (const Setting& setting : settings) names().push_back(setting.name);
  }
  static std::vector<std::string>& names() {
    static std::vector<std::string> all;
    return all;
  }
  const std::vector<Setting> settings;
};

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

  // Returns the tokens' positions. Drawn positions or distances come from the file.
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

  Tensor embedded() const { return stages().embeds.at(0).scheme->embed(input("x"), sequence().positions); }

  using Result = BareAttention::Result;
  // Runs the reference executor, which shows logits and patterns.
  Result run() const {
    Result result = run(input("q"), input("k"));
    if (!has_two_layers()) return result;
    result.logits = result.logits + run(input("q1"), input("k1")).logits;
    result.pattern = softmax(result.logits, mask());
    result.output = matmul(result.pattern, input("v"));
    return result;
  }
  Tensor output(const AttendPlan& plan) const { return attend(inputs(input("q"), input("k")), stages(), plan); }

 private:
  SchemeSizes sizes() const {
    if (embeds()) return {.dim = input("x").size(2), .heads = 1, .length = input("x").size(1)};
    const Shape q = input("q").shape();
    return {.dim = q[1] * q[3], .heads = q[1], .length = q[2]};
  }

  // Sets the example's parameters. A layer that is not in the example becomes the identity.
  void set(const Module::Parameter& parameter) {
    CAPTURE(parameter.path);
    for (const auto& [letter, ending] : setting_.letters) {
      if (!("." + parameter.path).ends_with("." + ending)) continue;
      // Axes of extent 1 may differ from the file's: a 1x1 convolution is a linear layer.
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

  Result run(const Tensor& q, const Tensor& k) const { return scheme_->run(inputs(q, k), Executor::reference); }

  const Setting& setting_;
  const json& json_;
  std::vector<Named> leaves_;
  std::unique_ptr<BareAttention> scheme_;
};

// Checks a weighted sum of y and its gradients with respect to all inputs and parameters. The file has two such losses
// per example, with different endings.
inline void check_loss(const Example& it, const Tensor& y, const char* weights, const std::string& end = "") {
  const json &expected = it.expected(), &gradients = expected.at("grads" + end);
  const Tensor loss = sum(y * worked_tensor(expected.at(weights)));
  CHECK(std::fabs(loss.item() - expected.at("loss" + end).get<double>()) < worked_tolerance);
  CHECK(gradients.size() == it.leaves().size());  // no gradient of the file is forgotten
  const std::vector<Named> found = gradients_of(loss, {}, it.leaves());
  for (std::size_t k = 0; k < found.size(); ++k) {
    CAPTURE(found[k].name);
    const Tensor wanted = worked_tensor(gradients.at(it.leaves()[k].name));
    CHECK(distance(reshape(found[k].tensor, wanted.shape()), wanted) < worked_tolerance);
  }
}

inline void check_output(const Example& it, const Tensor& output) {
  CHECK(distance(output, worked_tensor(it.expected().at("outputs").at("attn_out"))) < worked_tolerance);
  check_loss(it, output, "W_out", "_attn_out");
}

// Masked logits are unspecified and not compared.
inline void check_attention(const Example& it) {
  const json& outputs = it.expected().at("outputs");
  const Example::Result result = it.run();
  CHECK(distance(masked(result.logits, it.mask()), masked(worked_tensor(outputs.at("logits_premask")), it.mask())) <
        worked_tolerance);
  CHECK(distance(result.pattern, worked_tensor(outputs.at("probs"))) < worked_tolerance);
  check_loss(it, result.logits, "W");
  check_output(it, result.output);
  if (!it.has_two_layers()) check_output(it, it.output(Executor::strips));  // no other run has their sum
}

// Compares pairs that the mask allows.
inline void check_intermediate(const Example& it, const Intermediate& wanted, const Capture& capture) {
  CAPTURE(wanted.name);
  const Tensor numbers = worked_tensor(it.expected().at("outputs").at(wanted.name)) * wanted.factor, mask = it.mask();
  const bool by_pair = numbers.rank() == 4 && numbers.size(2) == mask.size(0) && numbers.size(3) == mask.size(1) &&
                       !wanted.name.ends_with("_rot");
  bool found = false;
  for (const std::string& seen : capture.names()) {
    if (!("." + seen).ends_with("." + wanted.probe)) continue;
    found = true;
    const Tensor value = capture[seen].value();
    const Tensor ours = expand(numbers.rank() == 2 ? reshape(value, numbers.shape()) : value, numbers.shape());
    CHECK((by_pair ? distance(masked(ours, mask), masked(numbers, mask)) : distance(ours, numbers)) < worked_tolerance);
  }
  CHECK_MESSAGE(found, "no probe's name ends with " << wanted.probe);
}

inline void check_intermediates(const Example& it) {
  const Capture capture("*");
  (void)it.run();
  for (const Intermediate& wanted : it.setting().intermediates) check_intermediate(it, wanted, capture);
  std::vector<std::string> known{"logits_premask", "probs", "attn_out"};
  known.insert(known.end(), it.setting().unseen.begin(), it.setting().unseen.end());
  for (const Intermediate& each : it.setting().intermediates) known.push_back(each.name);
  for (const auto& entry : it.expected().at("outputs").items())
    CHECK_MESSAGE(std::ranges::count(known, entry.key()), entry.key() << " is neither compared nor declared unseen");
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
  const json& outputs = it.expected().at("outputs");
  const Tensor output = it.embedded(), x = it.input("x");
  CHECK(distance(output, worked_tensor(outputs.at("out"))) < worked_tolerance);
  if (outputs.contains("table"))
    CHECK(distance(output - x, reshape(worked_tensor(outputs.at("table")), x.shape())) < worked_tolerance);
  check_loss(it, output, "W");
}

inline void check_worked(const WorkedFamily& family) {
  for (const Setting& setting : family.settings) {
    CAPTURE(setting.name);
    const Example it(setting);
    if (it.embeds()) {
      check_embedding(it);
    } else {
      check_attention(it);
      check_intermediates(it);
    }
    check_worked_gradcheck(it);
  }
}

}  // namespace whence::test

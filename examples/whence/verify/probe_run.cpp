// The pass of `whence probe`: forward under a capture of everything, then one backward from all cotangents.
#include "examples/whence/verify/probe_run.h"

#include <set>

#include "autograd/backward.h"
#include "autograd/inspect/capture.h"
#include "autograd/ops.h"
#include "examples/whence/verify/comparison.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// Returns the sum of v'y over all given cotangents v; undefined if there are none.
Tensor contracted(const BareAttention::Result& result, const ProbeInput& input) {
  Tensor total;
  for (const auto& [value, cotangent] :
      {std::pair{result.output, input.cotangent}, {result.logits, input.cotangent_logits}}) {
    if (!cotangent.defined()) continue;
    const Tensor term = sum(value * cotangent);
    total = total.defined() ? total + term : term;
  }
  return total;
}

// Returns an intermediate's gradient. The given cotangent of the logits enters after their probe, so it is added here.
Tensor gradient_at(
    const Capture& capture, const std::string& name, const BareAttention::Result& result, const ProbeInput& input) {
  const Tensor gradient = capture[name].gradient();
  if (name != "logits" || !input.cotangent_logits.defined()) return gradient;
  const Tensor own = input.given.sequence.on(result.logits.device()).masked(input.cotangent_logits);
  return gradient.defined() ? raw::add(gradient, own) : own;
}

}  // namespace

SafetensorsFile run_probe(const ProbeInput& input, const AttendPlan& plan) {
  const std::vector<Named> leaves = leaves_of(*input.scheme, input.given);
  const bool attends = input.scheme->attends(), shows_all = attends && plan.executor == Executor::reference;
  std::vector<std::string> draws;
  for (const auto& [name, given] : input.draws) draws.push_back(name);
  Capture capture(shows_all ? std::vector<std::string>{"*"} : draws);
  for (const auto& [name, given] : input.draws)
    if (given.defined()) capture.edit(name, [put = given](const Tensor&) { return put; });
  const BareAttention::Result result = input.scheme->run(input.given, plan);
  std::set<std::string> apart{
      "output", "embedded"};  // not taken from probes: read from the file, or written separately
  for (const Named& leaf : leaves) apart.insert(leaf.name);
  std::vector<Named> gradients;
  if (const Tensor total = contracted(result, input); total.defined()) gradients = gradients_of(total, {}, leaves);
  SafetensorsFile file{
      {}, {{"scheme", input.scheme->text()}, {"executor", attends ? name_of(plan.executor) : "none"},
              {"dtype", to_string(input.dtype())}, {"causal", input.given.sequence.causal ? "true" : "false"}}};
  NamedTensors& out = file.tensors;
  if (result.embedded.defined() && attends) out.emplace_back("embedded", result.embedded);
  for (const std::string& name : capture.names()) {
    if (apart.contains(name)) continue;
    out.emplace_back(name, name == "logits"    ? result.logits
                           : name == "pattern" ? result.pattern
                                               : capture[name].value());
    if (const Tensor gradient = gradient_at(capture, name, result, input); gradient.defined())
      out.emplace_back("gradient." + name, gradient);
  }
  out.emplace_back("output", result.output);
  for (const Named& gradient : gradients) out.emplace_back(gradient.name, gradient.tensor);
  record_order(file);
  return file;
}

}  // namespace whence

// The probe program's pass: forward under a capture of everything, then one backward from all cotangents.
#include "examples/whence/verify/probe_run.h"

#include <algorithm>

#include "autograd/backward.h"
#include "autograd/inspect/probe.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// What is differentiated by, with the names of the file.
NamedTensors leaves_of(const ProbeInput& input) {
  NamedTensors leaves;
  const BareOperands& given = input.operands;
  for (const auto& [name, tensor] : NamedTensors{{"q", given.q}, {"k", given.k}, {"v", given.v}, {"x", given.x}})
    if (tensor.defined()) leaves.emplace_back(name, requires_grad(tensor));
  for (const Module::Parameter& parameter : input.scheme->root().parameters())
    if (!parameter.frozen) leaves.emplace_back(parameter.path, parameter.tensor);
  return leaves;
}

bool has(const NamedTensors& tensors, const std::string& name) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const auto& entry) { return entry.first == name; });
}

// v'y for all cotangents given; undefined when there are none.
Tensor contracted(const BareAttention::Result& result, const ProbeInput& input) {
  Tensor total;
  const auto add = [&total](const Tensor& value, const Tensor& cotangent) {
    if (!cotangent.defined()) return;
    const Tensor term = sum(value * cotangent);
    total = total.defined() ? total + term : term;
  };
  add(result.output, input.cotangent);
  add(result.logits, input.cotangent_logits);
  return total;
}

// Of intermediates: what backward left at their probes. The logits' own cotangent joins behind their probe.
void write_intermediates(
    const Capture& capture, const BareAttention::Result& result, const ProbeInput& input, NamedTensors& out) {
  const Tensor& q = input.operands.q;
  const Sequence sequence = input.setting.sequence(q.size(2)).on(q.device());
  for (const std::string& name : capture.names()) {
    if (has(out, "gradient." + name) || has(out, name) || name == "q" || name == "k" || name == "v") continue;
    if (name != "logits" && name != "pattern") out.emplace_back(name, capture[name].value());
    Tensor gradient = capture[name].gradient();
    if (name == "logits" && input.cotangent_logits.defined()) {
      const Tensor seen = sequence.mask();
      const Tensor own = seen.defined() ? masked(input.cotangent_logits, seen, 0) : input.cotangent_logits;
      gradient = gradient.defined() ? raw::add(gradient, own) : own;
    }
    if (gradient.defined()) out.emplace_back("gradient." + name, gradient);
  }
  out.emplace_back("logits", result.logits);
  out.emplace_back("pattern", result.pattern);
}

}  // namespace

SafetensorsFile run_probe(const ProbeInput& input, const Executor& executor) {
  const NamedTensors leaves = leaves_of(input);
  const bool shows_all = input.scheme->attends() && &executor == &reference_executor();
  std::vector<std::string> draws;
  for (const auto& [name, given] : input.draws) draws.push_back(name);
  Capture capture(shows_all ? std::vector<std::string>{"*"} : draws);
  for (const auto& [name, given] : input.draws)
    if (given.defined()) capture.edit(name, [put = given](const Tensor&) { return put; });
  const BareAttention::Result result = input.scheme->run(input.operands, input.setting, executor);
  NamedTensors out{{"output", result.output}};
  if (result.embedded.defined() && input.scheme->attends()) out.emplace_back("embedded", result.embedded);
  for (const std::string& name : draws) out.emplace_back(name, capture[name].value());
  if (const Tensor total = contracted(result, input); total.defined()) {
    std::vector<Tensor> handles;
    for (const auto& [name, tensor] : leaves) handles.push_back(tensor);
    const std::vector<Tensor> found = grad(total, {}, handles, {.allow_unused = true});
    for (std::size_t k = 0; k < leaves.size(); ++k) {
      const Tensor& leaf = leaves[k].second;
      out.emplace_back(
          "gradient." + leaves[k].first, found[k].defined() ? found[k] : Tensor::zeros(leaf.shape(), leaf.dtype()));
    }
  }
  if (shows_all) write_intermediates(capture, result, input, out);
  return {out, {{"scheme", input.scheme->text()}, {"executor", input.scheme->attends() ? executor.name() : "none"},
                   {"dtype", to_string(input.dtype())}, {"causal", input.setting.causal ? "true" : "false"}}};
}

}  // namespace whence

// The probe program's pass: forward under a capture of everything, then one backward from all cotangents.
#include "examples/whence/verify/probe_run.h"

#include <algorithm>

#include "autograd/backward.h"
#include "autograd/inspect/capture.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

bool has(const NamedTensors& tensors, const std::string& name) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const auto& entry) { return entry.first == name; });
}

// v'y for all cotangents given; undefined when there are none.
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

// Of intermediates: what backward left at their probes. The logits' own cotangent joins behind their probe.
void write_intermediates(
    const Capture& capture, const BareAttention::Result& result, const ProbeInput& input, NamedTensors& out) {
  for (const std::string& name : capture.names()) {
    if (has(out, "gradient." + name) || has(out, name) || name == "q" || name == "k" || name == "v") continue;
    if (name != "logits" && name != "pattern") out.emplace_back(name, capture[name].value());
    Tensor gradient = capture[name].gradient();
    if (name == "logits" && input.cotangent_logits.defined()) {
      const Tensor own = input.given.sequence.on(result.logits.device()).masked(input.cotangent_logits);
      gradient = gradient.defined() ? raw::add(gradient, own) : own;
    }
    if (gradient.defined()) out.emplace_back("gradient." + name, gradient);
  }
  out.emplace_back("logits", result.logits);
  out.emplace_back("pattern", result.pattern);
}

}  // namespace

SafetensorsFile run_probe(const ProbeInput& input, const Executor& executor) {
  const std::vector<Named> leaves = leaves_of(*input.scheme, input.given);
  const bool attends = input.scheme->attends(), shows_all = attends && &executor == &reference_executor();
  std::vector<std::string> draws;
  for (const auto& [name, given] : input.draws) draws.push_back(name);
  Capture capture(shows_all ? std::vector<std::string>{"*"} : draws);
  for (const auto& [name, given] : input.draws)
    if (given.defined()) capture.edit(name, [put = given](const Tensor&) { return put; });
  const BareAttention::Result result = input.scheme->run(input.given, executor);
  NamedTensors out{{"output", result.output}};
  if (result.embedded.defined() && attends) out.emplace_back("embedded", result.embedded);
  for (const std::string& name : draws) out.emplace_back(name, capture[name].value());
  if (const Tensor total = contracted(result, input); total.defined())
    for (const Named& gradient : gradients_of(total, {}, leaves)) out.emplace_back(gradient.name, gradient.tensor);
  if (shows_all) write_intermediates(capture, result, input, out);
  return {out, {{"scheme", input.scheme->text()}, {"executor", attends ? executor.name() : "none"},
                   {"dtype", to_string(input.dtype())}, {"causal", input.given.sequence.causal ? "true" : "false"}}};
}

}  // namespace whence

// The worked numbers of the schemes that came after the papers: values, intermediates and all gradients by every
// executor. tests/torch/test_worked.py made later.json by the formulas in PyTorch.
#include <algorithm>

#include "examples/whence/verify/probe_run.h"
#include "nn/scheme_registry.h"
#include "tests/nn/positional/worked/worked.h"

using namespace whence;
using namespace whence::test;

namespace {

const json& later() {
  static const json parsed = json_of(text_of(source_folder() + "/tests/nn/positional/worked/later.json"));
  return parsed.at("examples");
}

NamedTensors tensors_of(const json& entries) {
  NamedTensors all;
  for (const auto& [name, entry] : entries.items()) all.emplace_back(name, worked_tensor(entry));
  return all;
}

const Tensor* named(const std::string& wanted, const NamedTensors& all) {
  const auto found = std::ranges::find(all, wanted, [](const auto& each) { return each.first; });
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace

TEST_CASE("worked examples: the schemes that came after the papers") {
  REQUIRE(!later().empty());
  for (const json& each : later()) {
    const std::string text = each.at("scheme");
    CAPTURE(text);
    const ProbeInput input = probe_input_of("", tensors_of(each.at("given")), text, DType::f64, {});
    CHECK(input.drawn.empty());
    for (const Executor executor : all_executors) {
      CAPTURE(name_of(executor));
      if (!refusal_of(executor, input.scheme->stages()).empty()) continue;
      const NamedTensors made = run_probe(input, executor).tensors;
      for (const auto& expected : tensors_of(each.at("expected"))) {
        const std::string& name = expected.first;
        const Tensor& wanted = expected.second;
        CAPTURE(name);
        const Tensor* const ours = named(name, made);
        if (executor != Executor::reference && !ours) continue;  // only the reference shows pairs
        REQUIRE(ours);
        const bool by_pair = wanted.rank() == 4 && wanted.size(2) == 5 && wanted.size(3) == 5;
        const auto visible = [&](const Tensor& x) { return by_pair ? input.given.sequence.masked(x) : x; };
        CHECK(distance(visible(expand(*ours, wanted.shape())), visible(wanted)) < worked_tolerance);
      }
    }
  }
}

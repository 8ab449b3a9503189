// whence_graph SEED SECONDS: random graphs of all registered ops, backward against dual numbers.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/check/gradcheck.h"
#include "autograd/ops.h"
#include "autograd/samples/samples.h"
#include "tensor/random.h"

namespace {

using namespace whence;
using Tensors = std::vector<Tensor>;

struct Step {
  std::string name;
  CheckedSample sample;
  std::vector<std::size_t> from;  // for each input, the earlier node that is mixed into it, or none
  std::vector<Tensor> mixers;     // [numel of that node, numel of the input]
};

// Moves a sample a little by the numbers of an earlier node, so that it stays where its op is defined.
Tensor mixed(const Tensor& sample, const Tensor& node, const Tensor& mixer) {
  const Tensor row = reshape(node, {1, node.numel()});
  return sample + 1e-3 * reshape(tanh(matmul(row, mixer)), sample.shape());
}

Tensor run(const std::vector<Step>& steps, const std::vector<Tensors>& inputs) {
  Tensors nodes;
  Tensor total;
  for (std::size_t k = 0; k < steps.size(); ++k) {
    Tensors given = inputs[k];
    for (std::size_t n = 0; n < given.size(); ++n)
      if (steps[k].from[n] < k && nodes[steps[k].from[n]].defined())
        given[n] = mixed(given[n], nodes[steps[k].from[n]], steps[k].mixers[n]);
    const Tensor y = steps[k].sample.run(given);
    nodes.push_back(is_floating(y.dtype()) && y.numel() > 0 ? y : Tensor());
    if (!nodes.back().defined()) continue;
    const Tensor part = sum(tanh(y));
    total = total.defined() ? total + part : part;
  }
  return total;
}

const std::vector<CheckedOp>& usable() {
  static const std::vector<CheckedOp> ops = [] {
    std::vector<CheckedOp> found;
    for (const CheckedOp& op : checked_ops())
      if (op.samples) found.push_back(op);
    return found;
  }();
  return ops;
}

bool fits(const CheckedSample& sample) {
  index_t numbers = 0;
  for (const Tensor& input : sample.inputs) numbers += input.defined() ? input.numel() : 0;
  return !sample.kinked && numbers > 0 && numbers < 200;
}

std::string one_graph(std::uint64_t seed, std::map<std::string, int>& met) {
  std::mt19937_64 random(seed);
  std::vector<Step> steps;
  std::vector<Tensors> inputs;
  std::vector<Named> leaves;
  std::string names;
  const std::size_t count = 2 + random() % 6;
  Tensors outputs;
  while (steps.size() < count) {
    const CheckedOp& op = usable()[random() % usable().size()];
    const Samples samples = op.samples();
    if (samples.empty()) continue;
    Step step{op.name, samples[random() % samples.size()], {}, {}};
    if (!fits(step.sample)) continue;
    const Tensor alone = step.sample.run(step.sample.inputs);
    for (const Tensor& input : step.sample.inputs) {
      std::size_t from = steps.empty() || !input.defined() || !is_floating(input.dtype()) || input.numel() == 0
                             ? count
                             : random() % (2 * steps.size());
      if (from >= steps.size() || !outputs[from].defined() || outputs[from].numel() == 0 ||
          !is_floating(outputs[from].dtype()))
        from = count;
      step.from.push_back(from);
      step.mixers.push_back(
          from == count ? Tensor()
                        : Tensor::normal({outputs[from].numel(), input.numel()}, 0, 0.3,
                              Stream(seed, to_text("mixer ", steps.size(), " ", step.from.size())), DType::f64));
    }
    Tensors mine;
    for (std::size_t n = 0; n < step.sample.inputs.size(); ++n) {
      const Tensor& input = step.sample.inputs[n];
      mine.push_back(input.defined() ? input.detach() : input);
      if (input.defined() && input.dtype() == DType::f64 && input.numel() > 0)
        leaves.push_back({to_text(op.name, " ", steps.size(), " input ", n), requires_grad(mine.back())});
    }
    names += (names.empty() ? "" : ", ") + op.name + " (" + step.sample.name + ")";
    inputs.push_back(mine);
    outputs.push_back(alone);
    steps.push_back(std::move(step));
  }
  const bool floats = std::any_of(
      outputs.begin(), outputs.end(), [](const Tensor& y) { return y.numel() > 0 && is_floating(y.dtype()); });
  if (leaves.empty() || !floats) return {};
  for (const Step& step : steps) ++met[step.name];
  GradcheckOptions options;
  options.differences = false;
  options.dual_tolerance = 1e-10;
  const GradcheckReport report = gradcheck([&] { return run(steps, inputs); }, leaves, options);
  return report.ok() ? std::string() : names + ": " + report.problems[0];
}

int random_graphs(std::uint64_t seed, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::map<std::string, int> met;
  int count = 0, failures = 0;
  for (; std::chrono::steady_clock::now() < end; ++count) {
    std::string wrong;
    try {
      wrong = one_graph(seed + static_cast<std::uint64_t>(count), met);
    } catch (const std::exception& error) { wrong = error.what(); }
    if (wrong.empty()) continue;
    ++failures;
    std::cerr << "graph " << std::hex << seed + static_cast<std::uint64_t>(count) << std::dec << ": " << wrong << '\n';
  }
  std::cout << count << " graphs of " << met.size() << " of " << usable().size() << " ops, " << failures
            << " failures\n";
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 3) return random_graphs(std::strtoull(arguments[1], nullptr, 16), std::atof(arguments[2]));
  std::cerr << "whence_graph: SEED SECONDS required\n";
  return 2;
}

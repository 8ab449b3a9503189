// whence_graph: random graphs of ops and their gradients.
//   whence_graph SEED SECONDS    graphs of all registered ops: backward against dual numbers
//   whence_graph FILE            a graph from a file, one node a line; prints the last node, then each leaf's gradient
// A line is an op, the numbers of the nodes that it takes, and then its own: "leaf 2 3 : 0.5 ...", "exp 0", "matmul 0
// 1", "slice 0 1 0 2".
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/check/gradcheck.h"
#include "autograd/check/samples.h"
#include "autograd/ops.h"
#include "tensor/error.h"
#include "tensor/random.h"

namespace {

using namespace whence;
using Tensors = std::vector<Tensor>;

// ---- All registered ops ----

struct Step {
  std::string name;
  CheckedSample sample;
  std::vector<std::size_t> from;  // of each input, the earlier node that is mixed into it; ahead of all: none
  std::vector<Tensor> mixers;     // [numel of that node, numel of the input]
};

// A sample moved a little by what an earlier node holds: so it stays where its op is defined.
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

// What is wrong with one graph, or nothing.
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
    const std::vector<CheckedSample> samples = op.samples();
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

// ---- A graph from a file ----

struct Line {
  std::istringstream rest;
  const Tensors& nodes;
  Tensor node() {
    std::size_t k = 0;
    if (!(rest >> k) || k >= nodes.size()) throw InputError("graph: a node that is not there");
    return nodes[k];
  }
  index_t number() {
    index_t value = 0;
    rest >> value;
    return value;
  }
  Tensor numbers(DType dtype) {  // "2 3 : 0.5 ..."
    std::vector<index_t> sizes;
    for (std::string word; rest >> word && word != ":";) sizes.push_back(std::atoll(word.c_str()));
    std::vector<double> values;
    for (double value; rest >> value;) values.push_back(value);
    return Tensor::of(values, Shape(sizes), dtype);
  }
};

const std::map<std::string, std::function<Tensor(Line&)>>& ops() {
#define WHENCE_ONE(name)                            \
  {                                                 \
    #name, [](Line& at) { return name(at.node()); } \
  }
#define WHENCE_TWO(name)          \
  {                               \
    #name, [](Line& at) {         \
      const Tensor a = at.node(); \
      return name(a, at.node());  \
    }                             \
  }
#define WHENCE_AXIS(name)                            \
  {                                                  \
    #name, [](Line& at) {                            \
      const Tensor a = at.node();                    \
      return name(a, static_cast<int>(at.number())); \
    }                                                \
  }
  static const std::map<std::string, std::function<Tensor(Line&)>> known = {WHENCE_ONE(abs), WHENCE_ONE(exp),
      WHENCE_ONE(log), WHENCE_ONE(log1p), WHENCE_ONE(sqrt), WHENCE_ONE(square), WHENCE_ONE(reciprocal), WHENCE_ONE(sin),
      WHENCE_ONE(cos), WHENCE_ONE(tanh), WHENCE_ONE(sigmoid), WHENCE_ONE(softplus), WHENCE_ONE(silu), WHENCE_ONE(relu),
      WHENCE_ONE(leaky_relu), WHENCE_ONE(gelu), WHENCE_ONE(gelu_erf), WHENCE_ONE(softmax), WHENCE_TWO(add),
      WHENCE_TWO(subtract), WHENCE_TWO(multiply), WHENCE_TWO(divide), WHENCE_TWO(maximum), WHENCE_TWO(minimum),
      WHENCE_TWO(matmul), WHENCE_TWO(rms_norm), WHENCE_TWO(masked), WHENCE_TWO(take_rows), WHENCE_TWO(cross_entropy),
      WHENCE_TWO(lerp_at), WHENCE_AXIS(maximum_along), WHENCE_AXIS(cumulative_sum), WHENCE_AXIS(reverse_cumulative_sum),
      {"sum",
          [](Line& at) {
            const Tensor a = at.node();
            return sum(a, {static_cast<int>(at.number())}, true);
          }},
      {"mean",
          [](Line& at) {
            const Tensor a = at.node();
            return mean(a, {static_cast<int>(at.number())}, true);
          }},
      {"total", [](Line& at) { return sum(at.node()); }}, {"transpose", [](Line& at) { return transpose(at.node()); }},
      {"linear",
          [](Line& at) {
            const Tensor x = at.node(), w = at.node();
            return linear(x, w, at.node());
          }},
      {"layer_norm",
          [](Line& at) {
            const Tensor x = at.node(), w = at.node();
            return layer_norm(x, w, at.node());
          }},
      {"gather",
          [](Line& at) {
            const Tensor x = at.node();
            return gather(x, 1, at.node());
          }},
      {"concat",
          [](Line& at) {
            const Tensor a = at.node(), b = at.node();
            return concat_along(static_cast<int>(at.number()), {a, b});
          }},
      {"slice", [](Line& at) {
         const Tensor a = at.node();
         const auto axis = static_cast<int>(at.number());
         const index_t begin = at.number();
         return slice(a, axis, begin, at.number());
       }}};
#undef WHENCE_ONE
#undef WHENCE_TWO
#undef WHENCE_AXIS
  return known;
}

void print(const Tensor& x) {
  for (const double value : x.to_vector()) std::printf("%.17g ", value);
  std::printf("\n");
}

int graph_of_file(const char* path) {
  std::ifstream file(path);
  if (!file) throw InputError(path, ": cannot be read");
  Tensors nodes, leaves;
  for (std::string text; std::getline(file, text);) {
    Line line{std::istringstream(text), nodes};
    std::string op;
    line.rest >> op;
    if (op == "leaf") {
      leaves.push_back(requires_grad(line.numbers(DType::f64)));
      nodes.push_back(leaves.back());
    } else if (op == "index" || op == "mask") {
      nodes.push_back(line.numbers(op == "index" ? DType::i64 : DType::boolean));
    } else {
      if (!ops().contains(op)) throw InputError("graph: no op ", op);
      nodes.push_back(ops().at(op)(line));
    }
  }
  print(nodes.back());
  GradOptions options;
  options.allow_unused = true;
  std::size_t k = 0;
  for (const Tensor& gradient :
      grad(nodes.back(), Tensor::full(nodes.back().shape(), 1, DType::f64), leaves, options)) {
    print(gradient.defined() ? gradient : Tensor::zeros(leaves[k].shape(), DType::f64));
    ++k;
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count == 3) return random_graphs(std::strtoull(arguments[1], nullptr, 16), std::atof(arguments[2]));
    if (count == 2) return graph_of_file(arguments[1]);
    std::cerr << "whence_graph: SEED SECONDS, or FILE, required\n";
  } catch (const std::exception& error) { std::cerr << "whence_graph: " << error.what() << '\n'; }
  return 2;
}

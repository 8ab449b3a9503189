// bench ops: measures milliseconds of single ops, forward and backward, and their share of the bound: bytes to move, or
// operations of a matrix product. On the CPU also the cost of an op on four numbers above its kernel.
#include <algorithm>
#include <functional>
#include <memory>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/whence/bench/measured.h"
#include "examples/whence/cli/numbers.h"
#include "nn/training/precision.h"
#include "tensor/cpu/threads.h"
#include "tensor/device/device_runtime.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence::bench {
namespace {

// One op at one size, with its operands and its bound.
struct Case {
  std::string name;
  std::vector<Tensor> inputs;  // differentiated, if of the floating dtype
  std::function<Tensor(const std::vector<Tensor>&)> run;
  double operations = 0;  // for products; the backward pass has twice as many

  [[nodiscard]] double bytes(const Tensor& y) const {  // read and written once
    double moved = static_cast<double>(y.numel()) * static_cast<double>(size_of(y.dtype()));
    for (const Tensor& x : inputs) moved += static_cast<double>(x.numel()) * static_cast<double>(size_of(x.dtype()));
    return moved;
  }
};

// Sizes of a GPT-2 of 124M parameters with sixteen sequences of 512 tokens; `scale` reduces them.
std::vector<Case> cases(double scale, DType dtype, Device device) {
  const auto scaled = [&](double size) { return std::max<index_t>(2, static_cast<index_t>(size * scale)); };
  const index_t tokens = scaled(8192), dim = 768, wide = 3072, vocabulary = scaled(50257), rows = scaled(16 * 12 * 512);
  int made = 0;
  const auto numbers = [&](const Shape& shape) {
    const Tensor drawn = Tensor::normal(shape, 0, 1, Stream(0, "bench ops", static_cast<std::uint64_t>(++made)));
    return requires_grad(raw::to_device(raw::cast(drawn, dtype), device));
  };
  const auto picks = [&](index_t below) {
    const Tensor index = Tensor::empty({tokens}, DType::i64);
    const Stream stream(0, "bench ops picks");
    for (index_t k = 0; k < tokens; ++k)
      index.data<index_t>()[k] = stream.below(static_cast<std::uint64_t>(k), static_cast<std::uint32_t>(below));
    return raw::to_device(index, device);
  };
  using Inputs = std::vector<Tensor>;
  const double product = 2.0 * static_cast<double>(tokens) * static_cast<double>(dim * wide);
  return {{"add", {numbers({tokens, wide}), numbers({tokens, wide})}, [](const Inputs& x) { return x[0] + x[1]; }},
      {"gelu", {numbers({tokens, wide})}, [](const Inputs& x) { return gelu(x[0]); }},
      {"heads apart", {numbers({16, std::max<index_t>(1, tokens / 16), 12, 64})},
          [](const Inputs& x) {
            return contiguous(permute(x[0], {0, 2, 1, 3}));
          }},
      {"softmax", {numbers({rows, 512})}, [](const Inputs& x) { return softmax(x[0]); }},
      {"layer_norm", {numbers({tokens, dim}), numbers({dim}), numbers({dim})},
          [](const Inputs& x) { return layer_norm(x[0], x[1], x[2]); }},
      {"cumulative_sum", {numbers({rows / 8, 512})}, [](const Inputs& x) { return cumulative_sum(x[0]); }},
      {"embedding", {numbers({vocabulary, dim}), picks(vocabulary)},
          [](const Inputs& x) { return take_rows(x[0], x[1]); }},
      {"cross_entropy", {numbers({tokens, vocabulary}), picks(vocabulary)},
          [](const Inputs& x) { return cross_entropy(x[0], x[1]); }},
      {"linear", {numbers({tokens, dim}), numbers({wide, dim}), numbers({wide})},
          [](const Inputs& x) { return linear(x[0], x[1], x[2]); }, product}};
}

// A run repeats each pass in a series, so that the time excludes the start of a GPU's work.
Measured measured(const Case& each) {
  const auto found = std::make_shared<NamedTensors>();
  Measured measured{.name = each.name, .given = {}, .run = {}, .results = [found] { return *found; }};
  std::vector<Tensor> leaves;
  for (std::size_t k = 0; k < each.inputs.size(); ++k) {
    measured.given.emplace_back("input " + std::to_string(k), each.inputs[k]);
    if (is_floating(each.inputs[k].dtype())) leaves.push_back(each.inputs[k]);
  }
  const Tensor shaped = each.run(each.inputs);
  const Tensor drawn = Tensor::normal(shaped.shape(), 0, 1, Stream(0, "bench ops cotangent"));
  const Tensor cotangent = raw::to_device(raw::cast(drawn, shaped.dtype()), shaped.device());
  measured.given.emplace_back("cotangent", cotangent);
  measured.run = [each, leaves, cotangent, found] {
    constexpr int series = 5;
    const Device device = cotangent.device();
    Tensor y;
    std::vector<Tensor> gradients;
    synchronise(device);
    const double start = steady_seconds();
    for (int k = 0; k < series; ++k) y = each.run(each.inputs);
    synchronise(device);
    const double middle = steady_seconds();
    for (int k = 0; k < series; ++k) gradients = grad(y, cotangent, leaves);
    synchronise(device);
    const double end = steady_seconds();
    *found = {{"output", y.detach()}};
    for (std::size_t k = 0; k < gradients.size(); ++k)
      found->emplace_back("gradient of input " + std::to_string(k), gradients[k]);
    return Repetition{(middle - start) * 1e3 / series, (end - middle) * 1e3 / series};
  };
  return measured;
}

void measure(Bench& bench, const Case& each, DType precision) {
  bench.begin(each.name);
  const Measured one = measured(each);
  const Times times = bench.repeated(one.run);
  const double forward = median(times.forward).value,
               moved = each.bytes(named(one.results(), "output")) / forward / 1e6;
  const bool product = each.operations > 0;
  const double fraction =
      product ? bench.ceilings().milliseconds_of(each.operations) / forward : moved / bench.ceilings().copy_gb_per_s;
  Row row;
  row.add("op", each.name, "op").add("precision", to_string(precision));
  row.add(times, "backward ms", "")
      .add("forward_gb_per_s", moved)
      .add("fraction", fraction, "forward, of its ceiling", percent_of(fraction));
  if (product)
    row.add("forward_tflop_per_s", each.operations / forward / 1e9)
        .add("backward_tflop_per_s", 2 * each.operations / median(times.backward).value / 1e9);
  bench.keep(row);
}

// Returns nanoseconds per call, the best of 20 rounds: disturbances last longer than a round.
template <class F> double nanoseconds(const F& f) {
  constexpr int calls = 5000;
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    const double start = steady_seconds();
    for (int call = 0; call < calls; ++call) f();
    best = std::min(best, (steady_seconds() - start) / calls);
  }
  return best * 1e9;
}

void measure_overheads(Bench& bench) {
  const Tensor a = requires_grad(Tensor::ones({4})), b = requires_grad(Tensor::ones({4})), out = Tensor::empty({4});
  const Tensor m = requires_grad(Tensor::ones({4, 4})), product = Tensor::empty({4, 4});
  const Shape square{2, 2};
  Kernels& cpu = kernels(Device::cpu());
  const auto overhead = [&](const char* name, const auto& kernel, const auto& op) {
    stop_if_asked();
    const double alone = nanoseconds(kernel), recorded = nanoseconds(op);
    const NoGrad no_grad;
    const double plain = nanoseconds(op);
    bench.keep(Row()
                   .add("op", name, "op")
                   .add("kernel_ns", alone, "kernel alone ns", fixed(alone, 0))
                   .add("not_recorded_ns", plain, "not recorded ns", fixed(plain, 0))
                   .add("recorded_ns", recorded, "recorded ns", fixed(recorded, 0))
                   .add("", "", "above its kernel, recorded ns", fixed(recorded - alone, 0)),
        "cost of an op on a handful of numbers, one thread:");
  };
  overhead(
      "add [4]", [&] { cpu.binary(functions::Add{}, a, b, out); }, [&] { (void)add(a, b); });
  overhead(
      "sigmoid [4]", [&] { cpu.unary(functions::Sigmoid{}, {}, a, out); }, [&] { (void)sigmoid(a); });
  overhead(
      "matmul [4,4]", [&] { cpu.matmul(m, m, nullptr, 1, product); }, [&] { (void)matmul(m, m); });
  overhead(
      "softmax [4,4]", [&] { cpu.softmax(m, {}, product); }, [&] { (void)softmax(m); });
  overhead(
      "reshape [4]", [&] { (void)raw::reshape(a, square); }, [&] { (void)reshape(a, square); });
  const double chain = nanoseconds([&] {
    Tensor y = a;
    for (int k = 0; k < 10; ++k) y = sigmoid(y);
    (void)grad(y, b.detach(), {a});
  }) / 10;
  bench.keep(Row().add("op", "sigmoid [4], forward, backward and freed").add("recorded_ns", chain));
  bench.note("ten sigmoids of [4], forward, backward and freed: " + fixed(chain, 0) + " ns per op");
}

}  // namespace

void ops(const Options& options, const Placement& placement) {
  const std::vector<Case> list = cases(options.scale, placement.precision, placement.device);
  Bench bench("ops", options, placement.device, list.size());
  for (const Case& each : list) measure(bench, each, placement.precision);
  if (!placement.device.is_cpu()) return;
  set_threads(1);
  measure_overheads(bench);
  set_threads(options.machine.threads);
}

std::vector<Measured> measured_ops(double scale, DType dtype, Device device) {
  std::vector<Measured> all;
  for (const Case& each : cases(scale, dtype, device)) all.push_back(measured(each));
  return all;
}

}  // namespace whence::bench

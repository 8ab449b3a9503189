// device_ops: milliseconds of single ops, forward and backward, on a device and in a dtype, with the rate that they
// reach of what bounds them: bytes that must be moved, or operations of a matrix product.
// The PyTorch twin is device_ops.py.
#include <algorithm>
#include <functional>
#include <iostream>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/app/command.h"
#include "examples/app/command_line.h"
#include "examples/app/placement.h"
#include "examples/app/progress.h"
#include "examples/app/results.h"
#include "tensor/device_choice.h"
#include "tensor/device_runtime.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct Options {
  std::string device = "auto", precision = "f32";
  double scale = 1, seconds = 0.2;
};

// One op at one size: what it is given and what bounds it.
struct Case {
  std::string name;
  std::vector<Tensor> inputs;  // differentiated by, where they are of the floating dtype
  std::function<Tensor(const std::vector<Tensor>&)> run;
  double operations = 0;  // of products; the backward pass has twice as many
};

// The median milliseconds of one call, the device drained before and after a series.
double milliseconds(Device device, double seconds, const std::function<void()>& call) {
  call();
  std::vector<double> found;
  for (const double start = steady_seconds();
       found.size() < 3 || (steady_seconds() - start < seconds && found.size() < 50);) {
    constexpr int series = 5;
    synchronise(device);
    const double before = steady_seconds();
    for (int k = 0; k < series; ++k) call();
    synchronise(device);
    found.push_back((steady_seconds() - before) * 1e3 / series);
  }
  std::sort(found.begin(), found.end());
  return found[found.size() / 2];
}

// Sizes of a GPT-2 of 124M parameters with sixteen sequences of 512 tokens; --scale makes them smaller.
std::vector<Case> cases(const Options& options, DType dtype, Device device) {
  const auto scaled = [&](double size) { return std::max<index_t>(2, static_cast<index_t>(size * options.scale)); };
  const index_t tokens = scaled(8192), dim = 768, wide = 3072, vocabulary = scaled(50257), rows = scaled(16 * 12 * 512);
  int made = 0;
  const auto numbers = [&](const Shape& shape) {
    const Tensor drawn = Tensor::normal(shape, 0, 1, Stream(0, "device_ops", static_cast<std::uint64_t>(++made)));
    return requires_grad(raw::to_device(raw::cast(drawn, dtype), device));
  };
  const auto picks = [&](index_t below) {
    const Tensor index = Tensor::empty({tokens}, DType::i64);
    const Stream stream(0, "device_ops picks");
    for (index_t k = 0; k < tokens; ++k)
      index.data<index_t>()[k] = stream.below(static_cast<std::uint64_t>(k), static_cast<std::uint32_t>(below));
    return raw::to_device(index, device);
  };
  using Inputs = std::vector<Tensor>;
  const double product = 2.0 * static_cast<double>(tokens) * static_cast<double>(dim * wide);
  return {{"add", {numbers({tokens, wide}), numbers({tokens, wide})}, [](const Inputs& x) { return x[0] + x[1]; }},
      {"gelu", {numbers({tokens, wide})}, [](const Inputs& x) { return gelu(x[0]); }},
      {"heads apart", {numbers({16, tokens / 16, 12, 64})},
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

void time_case(const Case& each, const Options& options, Device device) {
  std::vector<Tensor> leaves;
  double moved = 0;
  for (const Tensor& x : each.inputs) {
    if (is_floating(x.dtype())) leaves.push_back(x);
    moved += static_cast<double>(x.numel()) * static_cast<double>(size_of(x.dtype()));
  }
  const double forward = milliseconds(device, options.seconds, [&] {
    const NoGrad no_grad;
    (void)each.run(each.inputs);
  });
  const Tensor y = each.run(each.inputs), cotangent = Tensor::ones(y.shape(), y.dtype(), device);
  moved += static_cast<double>(y.numel()) * static_cast<double>(size_of(y.dtype()));
  const double backward = milliseconds(device, options.seconds, [&] { (void)grad(y, cotangent, leaves); });
  LogRecord record{{"engine", std::string("whence")}, {"op", each.name}, {"device", to_string(device)},
      {"precision", options.precision}, {"forward_ms", forward}, {"backward_ms", backward},
      {"forward_gb_per_s", moved / forward / 1e6}};
  if (each.operations > 0) {
    record.push_back({"forward_tflop_per_s", each.operations / forward / 1e9});
    record.push_back({"backward_tflop_per_s", 2 * each.operations / backward / 1e9});
  }
  std::cout << json_line(record) << std::flush;
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line("whence bench device_ops", "Times single ops on a device, forward and backward.");
  line.heading("Options")
      .choice("precision", &options.precision, {"f32", "f16", "bf16"}, {"of all numbers"})
      .number("scale", &options.scale, Range<double>{0, 1, true},
          {"of the sizes of a GPT-2 of 124M parameters, 16 sequences of 512 tokens"})
      .number("seconds", &options.seconds, Range<double>{0, 60, true}, {"spent on each measurement"});
  declare_device(line, &options.device);
  if (line.shows_page(argc, argv)) return 0;
  const Device device = choose_device(options.device).device;
  for (const Case& each : cases(options, storage_dtype_of(options.precision), device)) time_case(each, options, device);
  return 0;
}

const RegisterCommand registered{{"bench device_ops", Purpose::machine, "milliseconds of single ops on a device", run}};

}  // namespace
}  // namespace whence

// attention: time and memory (bytes of tensors) of one attention with any scheme, forward and backward, by executor.
#include <algorithm>
#include <iostream>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/app/command.h"
#include "examples/app/command_line.h"
#include "examples/app/placement.h"
#include "examples/app/progress.h"
#include "examples/app/results.h"
#include "examples/app/scheme_names.h"
#include "examples/verify/bare_attention.h"
#include "tensor/allocator.h"
#include "tensor/backend.h"
#include "tensor/device_choice.h"
#include "tensor/device_runtime.h"
#include "tensor/error.h"
#include "tensor/kernels.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct Options {
  std::string scheme = "cdape(kerple)", executor = "strips", device = "auto";
  std::int64_t length = 2048, heads = 12, head_dim = 64, batch = 1;
  int runs = 3, threads = whence::threads();
  bool bidirectional = false, forward_only = false;
};

struct Measured {
  double forward = 0, backward = 0;  // seconds, the median run
  double kept_mib = 0;               // what forward leaves for backward
  double peak_mib = 0;
};

const Executor& executor_named(const std::string& name) {
  for (const Executor* executor : executors())
    if (executor->name() == name) return *executor;
  throw InputError("--executor: '", name, "' given; reference or strips required");
}

// Peak bytes above what the operands take. The device is waited for before each reading of the clock.
Measured measure(const Options& options, Device device) {
  const BareAttention scheme(options.scheme, {options.heads * options.head_dim, options.heads, options.length});
  scheme.draw_parameters(0);
  scheme.root().to(DType::f32);
  scheme.root().to(device);
  BareOperands operands = random_operands(scheme, options.batch, options.length, 0, DType::f32);
  std::vector<Tensor> leaves;
  for (Tensor* operand : {&operands.q, &operands.k, &operands.v, &operands.x})
    if (operand->defined()) leaves.push_back(*operand = requires_grad(raw::to_device(*operand, device)));
  for (const Module::Parameter& parameter : scheme.root().parameters()) leaves.push_back(parameter.tensor);
  const Executor& executor = executor_named(options.executor);
  const Sequence sequence = BareSetting{.causal = !options.bidirectional}.sequence(options.length).on(device);
  Allocator& allocator = memory_of(device).allocator();
  const auto live = [&] { return static_cast<double>(allocator.statistics().live); };
  std::vector<double> forward, backward;
  Measured result;
  for (int run = 0; run < options.runs; ++run) {
    allocator.reset_peak();
    synchronise(device);
    const double held = live(), start = steady_seconds();
    const Tensor output = executor.attend({operands.x, operands.q, operands.k, operands.v, sequence}, scheme.stages());
    synchronise(device);
    const double middle = steady_seconds();
    result.kept_mib = (live() - held) / 1048576;
    if (!options.forward_only) (void)grad(sum(output), {}, leaves, {.allow_unused = true});
    synchronise(device);
    forward.push_back(middle - start), backward.push_back(steady_seconds() - middle);
    result.peak_mib = std::max(result.peak_mib, (static_cast<double>(allocator.statistics().peak) - held) / 1048576);
  }
  std::sort(forward.begin(), forward.end()), std::sort(backward.begin(), backward.end());
  result.forward = forward[forward.size() / 2], result.backward = backward[backward.size() / 2];
  return result;
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line("whence bench attention",
      "Times one attention with any positional scheme, by executor, and measures its memory.");
  line.heading("Options")
      .text("scheme", &options.scheme, {.help = "positional scheme", .known = scheme_names()})
      .choice("executor", &options.executor, {"reference", "strips"}, {"how attention is computed"})
      .integer("length", &options.length, Range<std::int64_t>{1, 1048576}, {"of the sequence", "tokens"})
      .integer("heads", &options.heads, Range<std::int64_t>{1, 1024}, {"attention heads"})
      .integer("head-dim", &options.head_dim, Range<std::int64_t>{1, 4096}, {"numbers per head"})
      .integer("batch", &options.batch, Range<std::int64_t>{1, 65536}, {"sequences"})
      .integer("runs", &options.runs, Range<int>{1, 1000}, {"timed runs; the median counts"})
      .integer("threads", &options.threads, Range<int>{1, 1024}, {"of the engine"})
      .flag("bidirectional", &options.bidirectional, {"every query sees every key"})
      .flag("forward-only", &options.forward_only, {"no backward pass"});
  declare_device(line, &options.device);
  if (line.shows_page(argc, argv)) return 0;
  set_threads(options.threads);
  const Device device = choose_device(options.device).device;
  const Measured found = measure(options, device);
  std::cout << json_line({{"scheme", options.scheme}, {"executor", options.executor}, {"device", to_string(device)},
      {"length", options.length}, {"heads", options.heads}, {"batch", options.batch},
      {"forward_ms", found.forward * 1e3}, {"backward_ms", found.backward * 1e3}, {"kept_mib", found.kept_mib},
      {"peak_mib", found.peak_mib}});
  return 0;
}

const RegisterCommand registered{
    {"bench attention", Purpose::machine, "time and memory of one attention with any scheme, by executor", run}};

}  // namespace
}  // namespace whence

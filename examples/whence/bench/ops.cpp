// bench ops: milliseconds of single ops, forward and backward, and the share of what bounds them: bytes that must be
// moved, or operations of a matrix product. On the CPU also what an op on four numbers costs above its kernel.
#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/whence/bench/peer.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/machine/device_choice.h"
#include "examples/whence/report/table.h"
#include "nn/io/json.h"
#include "nn/training/precision.h"
#include "tensor/device/device_runtime.h"
#include "tensor/parallel.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence::bench {
namespace {

struct Options {
  std::string precision = "f32", ways = "all";
  double scale = 0.125;
  Settings settings;
};

// One op at one size: what it is given and what bounds it.
struct Case {
  std::string name;
  std::vector<Tensor> inputs;  // differentiated by, where they are of the floating dtype
  std::function<Tensor(const std::vector<Tensor>&)> run;
  double operations = 0;  // of products; the backward pass has twice as many

  [[nodiscard]] double bytes(const Tensor& y) const {  // read and written once
    double moved = static_cast<double>(y.numel()) * static_cast<double>(size_of(y.dtype()));
    for (const Tensor& x : inputs) moved += static_cast<double>(x.numel()) * static_cast<double>(size_of(x.dtype()));
    return moved;
  }
};

// Sizes of a GPT-2 of 124M parameters with sixteen sequences of 512 tokens; `scale` makes them smaller.
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

class OpsBench {
 public:
  OpsBench(const Options& options, Device device)
      : options_(options),
        device_(device),
        list_(cases(options.scale, storage_dtype_of(options.precision), device)),
        ways_(chosen_ways(options.settings, options.ways, {"eager", "compile"}, device.is_cpu())),
        bench_("ops", options.settings, device.is_cpu(), static_cast<std::int64_t>(list_.size() * (1 + ways_.size())),
            peer_version(options.settings)) {}

  void run() {
    bench_.run(
        [&] {
          for (const Case& each : list_) measure(each);
          if (device_.is_cpu()) measure_overhead();
        },
        [&] { show(); });
  }

 private:
  struct Row {
    std::string op, engine;
    Times times;
    double fraction, ratio;
  };
  struct Overhead {
    std::string op;
    double kernel, plain, recorded;  // nanoseconds
  };

  void measure(const Case& each) {
    bench_.begin(each.name);
    std::vector<Tensor> leaves;
    for (const Tensor& x : each.inputs)
      if (is_floating(x.dtype())) leaves.push_back(x);
    Tensor y = each.run(each.inputs);
    const Tensor cotangent = raw::to_device(
        raw::cast(Tensor::normal(y.shape(), 0, 1, Stream(0, "bench ops cotangent")), y.dtype()), device_);
    std::vector<Tensor> gradients;
    // A series of each: what starting a GPU's work costs is not to be in the time.
    const auto ours = [&]() -> Repetition {
      constexpr int series = 5;
      synchronise(device_);
      const double start = steady_seconds();
      for (int k = 0; k < series; ++k) y = each.run(each.inputs);
      synchronise(device_);
      const double middle = steady_seconds();
      for (int k = 0; k < series; ++k) gradients = grad(y, cotangent, leaves);
      synchronise(device_);
      return {(middle - start) * 1e3 / series, (steady_seconds() - middle) * 1e3 / series};
    };
    (void)ours();
    Times times;
    for (int round = 0; round < options_.settings.repetitions; ++round) stop_if_asked(), times.add(ours());
    keep(each, y, "whence", times, 0, -1);
    for (const PeerWay& way : ways_) {
      bench_.begin(each.name + ", " + way.text());
      Peer peer(options_.settings, way.tuned);
      NamedTensors given{{"cotangent", cotangent}}, results{{"output", y.detach()}};
      for (std::size_t k = 0; k < each.inputs.size(); ++k)
        given.emplace_back("input " + std::to_string(k), each.inputs[k]);
      for (std::size_t k = 0; k < gradients.size(); ++k)
        results.emplace_back("gradient of input " + std::to_string(k), gradients[k]);
      (void)peer.ask(
          {{"do", std::string("prepare")}, {"bench", std::string("ops")}, {"op", each.name}, {"way", way.way},
              {"device", std::string(device_.is_cpu() ? "cpu" : "cuda")}, {"precision", options_.precision}},
          given);
      const Difference difference = largest_difference(results, peer.ask({{"do", std::string("results")}}).tensors);
      require_equal(each.name + ", " + way.text(), difference,
          options_.precision == "f32"   ? 1e-4
          : options_.precision == "f16" ? 4e-3
                                        : 3e-2);
      const Turns turns = in_turn(peer, options_.settings.repetitions, ours);
      keep(each, y, way.text(), turns.theirs, turns.ratio(), difference.relative);
    }
  }

  void keep(
      const Case& each, const Tensor& y, const std::string& engine, const Times& times, double ratio, double relative) {
    const double forward = median(times.forward).value, backward = median(times.backward).value;
    const double moved = each.bytes(y) / forward / 1e6;
    Json record{{"op", each.name}, {"engine", engine}, {"device", to_string(device_)},
        {"precision", options_.precision}, {"threads", std::int64_t{threads()}}, {"forward_ms", forward},
        {"backward_ms", backward}, {"spread_ms", median(times.both).spread}, {"forward_gb_per_s", moved}};
    double fraction = 0;
    if (each.operations > 0) {
      record.add("forward_tflop_per_s", each.operations / forward / 1e9);
      record.add("backward_tflop_per_s", 2 * each.operations / backward / 1e9);
    }
    if (device_.is_cpu()) {
      fraction = each.operations > 0 ? bench_.ceilings().milliseconds_of(each.operations) / forward
                                     : moved / bench_.ceilings().copy_gb_per_s;
      record.add("fraction", fraction);
    }
    if (ratio > 0) record.add("ratio", ratio).add("difference", relative);
    bench_.record(record);
    rows_.push_back({each.name, engine, times, fraction, ratio});
  }

  // Nanoseconds per call: the best of 20 rounds, as these are shorter than what disturbs them.
  template <class F> static double nanoseconds(const F& f) {
    constexpr int calls = 5000;
    double best = 1e9;
    for (int round = 0; round < 20; ++round) {
      const double start = steady_seconds();
      for (int call = 0; call < calls; ++call) f();
      best = std::min(best, (steady_seconds() - start) / calls);
    }
    return best * 1e9;
  }

  void measure_overhead() {
    set_threads(1);
    const Tensor a = requires_grad(Tensor::ones({4})), b = requires_grad(Tensor::ones({4})), out = Tensor::empty({4});
    const Tensor m = requires_grad(Tensor::ones({4, 4})), product = Tensor::empty({4, 4});
    const auto add_row = [&](const char* name, const auto& kernel, const auto& op) {
      stop_if_asked();
      Overhead row{name, nanoseconds(kernel), 0, nanoseconds(op)};
      {
        const NoGrad no_grad;
        row.plain = nanoseconds(op);
      }
      bench_.record(
          {{"op", row.op}, {"kernel_ns", row.kernel}, {"not_recorded_ns", row.plain}, {"recorded_ns", row.recorded}});
      overheads_.push_back(row);
    };
    add_row(
        "add [4]", [&] { kernels({}).binary(functions::Add{}, a, b, out); }, [&] { (void)add(a, b); });
    add_row(
        "sigmoid [4]", [&] { kernels({}).unary(functions::Sigmoid{}, {}, a, out); }, [&] { (void)sigmoid(a); });
    add_row(
        "matmul [4,4]", [&] { kernels({}).matmul(m, m, nullptr, 1, product); }, [&] { (void)matmul(m, m); });
    add_row(
        "softmax [4,4]", [&] { kernels({}).softmax(m, {}, product); }, [&] { (void)softmax(m); });
    const Shape square{2, 2};
    add_row(
        "reshape [4]", [&] { (void)raw::reshape(a, square); }, [&] { (void)reshape(a, square); });
    chain_ = nanoseconds([&] {
      Tensor y = a;
      for (int k = 0; k < 10; ++k) y = sigmoid(y);
      (void)grad(y, b.detach(), {a});
    }) / 10;
    bench_.record({{"op", std::string("sigmoid [4], forward, backward and freed")}, {"recorded_ns", chain_}});
    set_threads(options_.settings.threads);
  }

  void show() const {
    std::vector<std::string> header{"op", "by", "forward ms", "backward ms", "forward, of its ceiling"};
    if (!ways_.empty()) header.emplace_back("theirs / ours");
    Table table(header);
    for (const Row& row : rows_) {
      std::vector<std::string> cells{row.op, row.engine, text_of(median(row.times.forward)),
          text_of(median(row.times.backward)), row.fraction > 0 ? fixed(100 * row.fraction, 0) + " %" : "-"};
      if (!ways_.empty()) cells.push_back(row.ratio > 0 ? fixed(row.ratio, 2) : "-");
      table.row(cells);
    }
    std::cout << table.text();
    if (overheads_.empty()) return;
    Table small({"op", "kernel alone ns", "not recorded ns", "recorded ns", "above its kernel, recorded ns"});
    for (const Overhead& row : overheads_)
      small.row({row.op, fixed(row.kernel, 0), fixed(row.plain, 0), fixed(row.recorded, 0),
          fixed(row.recorded - row.kernel, 0)});
    std::cout << "\nwhat an op on a handful of numbers costs, one thread:\n" << small.text();
    if (chain_ > 0)
      std::cout << "ten sigmoids of [4], forward, backward and freed: " << fixed(chain_, 0) << " ns per op\n";
  }

  const Options& options_;
  Device device_;
  std::vector<Case> list_;
  std::vector<PeerWay> ways_;
  Bench bench_;
  std::vector<Row> rows_;
  std::vector<Overhead> overheads_;
  double chain_ = 0;
};

int run(CommandLine& line) {
  Options options;
  line.heading("What is measured")
      .choice("precision", &options.precision, {"f32", "f16", "bf16"}, {"of all numbers"})
      .number("scale", &options.scale, Range<double>{0, 1, true},
          {"of the sizes of a GPT-2 of 124M parameters, 16 sequences of 512 tokens"});
  declare(line, options.settings);
  declare_peer(line, options.settings);
  line.text("ways", &options.ways, {"of the peer: eager, compile, or all"});
  if (line.shows_page()) return 0;
  for (const char* name : {"python", "ways"}) line.refuse_unless(name, options.settings.with_peer(), "--peer");
  set_threads(options.settings.threads);
  OpsBench(options, choose_device(options.settings.device).device).run();
  return 0;
}

const RegisterCommand registered{
    {"bench ops", Purpose::machine, "single ops, forward and backward, and what an op costs above its kernel", run}};

}  // namespace
}  // namespace whence::bench

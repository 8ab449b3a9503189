// bench attention: measures time and memory of one attention with any scheme, forward and backward, by executor and
// length, and compares them with the machine's ceilings.
#include <algorithm>
#include <cmath>
#include <optional>

#include "examples/whence/bench/attention_core.h"
#include "examples/whence/bench/measured.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/machine/placement.h"
#include "nn/training/precision.h"

namespace whence::bench {
namespace {

struct Options {
  CoreOptions core{.schemes = "none,alibi,kerple,cope,dape(kerple),cdape(kerple)", .executors = "all", .gates = "both"};
  std::string precision = "f32";
  bool bidirectional = false, forward_only = false;
  Settings settings;
};

class AttentionBench {
 public:
  AttentionBench(const Options& options, Device device)
      : options_(options),
        executors_(executors_of(options.core)),
        cases_(cases_of(options.core)),
        bench_("attention", options.settings, device, cases_.size()) {}

  void run() {
    for (CoreCase what : cases_) {
      what.causal = !options_.bidirectional, what.dtype = storage_dtype_of(options_.precision);
      measure(what);
    }
  }

 private:
  struct ByExecutor {
    Executor executor;
    Times times = {};
    double kept = 0, peak = 0;
  };

  void measure(const CoreCase& what) {
    bench_.begin(to_text(what.text(), ", length ", what.length));
    AttentionCore core(what, bench_.device());
    for (const ByExecutor& each : by_executors(core, what)) keep(core, what, each);
  }

  // Executors alternate, so that other load on the machine affects all.
  std::vector<ByExecutor> by_executors(AttentionCore& core, const CoreCase& what) {
    std::vector<ByExecutor> all;
    for (const Executor executor : executors_)
      if (const std::string refused = core.refusal(executor); refused.empty())
        all.push_back({executor});
      else
        refuse(what, name_of(executor), refused);
    for (int round = -1; round < options_.settings.repetitions; ++round) {  // the first round warms up
      for (ByExecutor& each : all) {
        stop_if_asked();
        const CoreRun found = core.run(each.executor, !options_.forward_only);
        each.kept = found.kept, each.peak = std::max(each.peak, found.peak);
        if (round >= 0) each.times.add(found);
      }
    }
    return all;
  }

  void refuse(const CoreCase& what, const std::string& engine, const std::string& reason) {
    bench_.keep(row_of(what, engine).add("refused", reason).add("", "no figures", "forward ms"));
    bench_.note(engine + ": " + what.scheme + ": " + reason);
  }

  void keep(const AttentionCore& core, const CoreCase& what, const ByExecutor& measured) {
    const double both = median(measured.times.both).value;
    const bool with_backward = !std::isnan(measured.times.backward.front());
    const double operations = core.forward_operations() + (with_backward ? core.backward_operations() : 0);
    const double share = bench_.ceilings().milliseconds_of(operations) / both;
    Row row = row_of(what, name_of(measured.executor));
    row.add(measured.times)
        .add("kept_mib", measured.kept, "kept MiB", fixed(measured.kept, 1))
        .add("peak_mib", measured.peak, "peak MiB", fixed(measured.peak, 1))
        .add("fraction", share, "of FMA peak", percent_of(share));
    bench_.keep(row);
  }

  const Options& options_;
  std::vector<Executor> executors_;
  std::vector<CoreCase> cases_;
  Bench bench_;
};

int run(CommandLine& line) {
  Options options;
  line.heading("Cases");
  declare(line, options.core);
  line.choice("precision", &options.precision, {"f32", "f16", "bf16"}, {"dtype of operands, parameters and gradients"})
      .flag("bidirectional", &options.bidirectional, {"every query sees every key"})
      .flag("forward-only", &options.forward_only, {"no backward pass"});
  declare(line, options.settings);
  line.example("whence bench attention --schemes none,cope --lengths 512", "each executor, on this machine");
  if (shows_page(line, options.settings)) return 0;
  AttentionBench(options, choose_device(options.settings.device).device).run();
  return 0;
}

const RegisterCommand registered{
    {"bench attention", Purpose::machine, "time and memory of one attention, by scheme, executor and length", run}};

}  // namespace

Measured measured_attention(const CoreCase& what, const std::string& executor, Device device) {
  const auto core = std::make_shared<AttentionCore>(what, device);
  AttendPlan wanted;
  if (executor != "auto") {
    CoreOptions options;
    options.executors = executor;
    wanted = executors_of(options).front();
    if (const std::string refused = core->refusal(wanted.executor); !refused.empty())
      throw InputError("executor: ", executor, " given with ", what.scheme, "; ", refused);
  }
  NamedTensors given = core->leaves();
  given.emplace_back("cotangent", core->cotangent());
  return {.name = to_text(what.text(), ", length ", what.length),
      .given = std::move(given),
      .run = [core, wanted] { return core->run(wanted); },
      .results = [core] { return core->results(); }};
}

}  // namespace whence::bench

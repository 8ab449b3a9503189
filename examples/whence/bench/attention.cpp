// bench attention: time and memory of one attention with any scheme, forward and backward, by executor and length,
// beside the machine's ceilings and beside PyTorch.
#include <algorithm>
#include <cmath>
#include <optional>

#include "examples/whence/bench/attention_core.h"
#include "examples/whence/bench/measured.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/report/plot.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "nn/training/precision.h"

namespace whence::bench {
namespace {

struct Options {
  CoreOptions core{.schemes = "none,alibi,kerple,cope,dape(kerple),cdape(kerple)", .executors = "all", .gates = "both"};
  std::string svg;
  std::string precision = "f32";
  bool bidirectional = false, forward_only = false;
  Settings settings;
};

// Curves over the length, by what was measured.
class Curves {
 public:
  explicit Curves(std::string title, std::string unit) : plot_{std::move(title), "length", std::move(unit), {}, true} {}

  void add(const std::string& name, std::int64_t length, double value) {
    auto curve = std::ranges::find(plot_.curves, name, &report::Curve::name);
    if (curve == plot_.curves.end()) curve = plot_.curves.insert(curve, report::Curve{.name = name, .x = {}, .y = {}});
    const double place = std::log2(static_cast<double>(length));
    curve->x.push_back(place), curve->y.push_back(value);
    if (std::ranges::find(plot_.x_ticks, place, &report::Tick::at) == plot_.x_ticks.end())
      plot_.x_ticks.push_back({place, std::to_string(length)});
  }
  const report::Plot& plot() const { return plot_; }

 private:
  report::Plot plot_;
};

class AttentionBench {
 public:
  AttentionBench(const Options& options, Device device)
      : options_(options),
        executors_(executors_of(options.core)),
        cases_(cases_of(options.core)),
        bench_("attention", options.settings, device, steps(device)) {}

  // Whether all results were equal.
  bool run() {
    ensure_output_file(options_.svg);
    for (CoreCase what : cases_) {
      what.causal = !options_.bidirectional, what.dtype = storage_dtype_of(options_.precision);
      measure(what);
    }
    if (!options_.svg.empty())
      write_file(options_.svg, report::svg_file("Measured, by length", "", {time_.plot(), memory_.plot()}, 1));
    return all_equal_;
  }

 private:
  struct Measured {
    const Executor* executor;
    Times times = {};
    double kept = 0, peak = 0;
  };

  std::vector<PeerWay> ways_of(const CoreCase& what, Device device) const {
    // The peer repeats keys and values for the heads that share them, and parameters of key heads it does not know.
    const BareAttention scheme(what.scheme, {what.heads * what.head_dim, what.heads, what.length, 0, what.kv_heads});
    const bool unknown = scheme.sizes().key_heads() < what.heads && scheme.claims().by_key_head;
    return chosen_ways(
        options_.settings, unknown ? std::vector<std::string>() : peer_ways_of(what.scheme), device.is_cpu());
  }

  std::size_t steps(Device device) const {
    std::size_t count = 0;
    for (const CoreCase& what : cases_) count += 1 + ways_of(what, device).size();
    return count;
  }

  void measure(const CoreCase& what) {
    bench_.begin(to_text(what.text(), ", length ", what.length));
    AttentionCore core(what, bench_.device());
    const std::vector<Measured> all = by_executors(core, what);
    const Measured* best = nullptr;
    double least = 0;
    for (const Measured& each : all) {
      const double both = median(each.times.both).value;
      if (!best || both < least) best = &each, least = both;
      keep(core, what, each.executor->name(), each);
    }
    if (best) compare_all(core, what, *best->executor);
  }

  // In turn, so that what else the machine does hits all.
  std::vector<Measured> by_executors(AttentionCore& core, const CoreCase& what) {
    std::vector<Measured> all;
    for (const Executor* executor : executors_)
      if (const std::string refused = core.refusal(*executor); refused.empty())
        all.push_back({executor});
      else
        refuse(what, executor->name(), refused);
    for (int round = -1; round < options_.settings.repetitions; ++round) {  // the first to warm up
      for (Measured& each : all) {
        stop_if_asked();
        const CoreRun found = core.run(*each.executor, !options_.forward_only);
        each.kept = found.kept, each.peak = std::max(each.peak, found.peak);
        if (round >= 0) each.times.add(found);
      }
    }
    return all;
  }

  void compare_all(AttentionCore& core, const CoreCase& what, const Executor& executor) {
    std::string best;  // of the ways that have a backward
    double least = 0;
    for (const PeerWay& way : ways_of(what, bench_.device())) {
      const bool with_backward = !options_.forward_only && !(way.way == "flex" && bench_.device().is_cpu());
      (void)core.run(executor, with_backward);
      Comparison comparison = core.comparison();
      comparison.ours = [&] { return core.run(executor, with_backward); };
      try {
        const Compared found = compare(bench_, way, comparison);
        keep(core, what, way.text(), {&executor, found.theirs, std::nan(""), found.peak_mib}, &found);
        if (with_backward == !options_.forward_only && (best.empty() || found.ratio < least))
          best = way.text(), least = found.ratio;
      } catch (const Unequal& error) {  // the other ways are still worth their time
        all_equal_ = false;
        refuse(what, way.text(), error.what());
      }
    }
    if (!best.empty())
      bench_.note(to_text(what.text(), ", length ", what.length, ": ", best, " is its fastest way and takes ",
          fixed(least, 2), " of our time"));
  }

  void refuse(const CoreCase& what, const std::string& engine, const std::string& reason) {
    bench_.keep(row_of(what, engine).add("refused", reason).add("", "no figures", "forward ms"));
    bench_.note(engine + ": " + what.scheme + ": " + reason);
  }

  void keep(const AttentionCore& core, const CoreCase& what, const std::string& engine, const Measured& measured,
      const Compared* peer = nullptr) {
    const double both = median(measured.times.both).value;
    const bool with_backward = !std::isnan(measured.times.backward.front());
    const double operations = core.forward_operations() + (with_backward ? core.backward_operations() : 0);
    const double share = bench_.ceilings().milliseconds_of(operations) / both;
    Row row = row_of(what, engine);
    row.add(measured.times)
        .add("kept_mib", measured.kept, "kept MiB", fixed(measured.kept, 1))
        .add("peak_mib", measured.peak, "peak MiB", fixed(measured.peak, 1))
        .add("fraction", share, "of FMA peak", percent_of(share));
    if (peer) row.add(row_of(*peer));
    bench_.keep(row);
    if (with_backward == options_.forward_only) return;
    time_.add(what.text() + ", " + engine, what.length, both);
    memory_.add(what.text() + ", " + engine, what.length, measured.peak);
  }

  const Options& options_;
  std::vector<const Executor*> executors_;
  std::vector<CoreCase> cases_;
  Bench bench_;
  Curves time_{"milliseconds, forward and backward", "ms"}, memory_{"peak bytes above the operands", "MiB"};
  bool all_equal_ = true;
};

int run(CommandLine& line) {
  Options options;
  line.heading("What is measured");
  declare(line, options.core);
  line.choice("precision", &options.precision, {"f32", "f16", "bf16"}, {"of operands, parameters and gradients"})
      .flag("bidirectional", &options.bidirectional, {"every query sees every key"})
      .flag("forward-only", &options.forward_only, {"no backward pass"});
  declare(line, options.settings, {"eager", "compile", "sdpa", "flex"});
  line.text("svg", &options.svg, {"write time and peak over length to this file"})
      .example("whence bench attention --schemes none,cope --lengths 512", "each executor, on this machine")
      .example("whence bench attention --peer pytorch --python .venv/bin/python", "the same beside PyTorch");
  if (shows_page(line, options.settings)) return 0;
  line.refuse_unless("peer", !options.bidirectional, "a causal run");
  return AttentionBench(options, choose_device(options.settings.device).device).run() ? 0 : 1;
}

const RegisterCommand registered{
    {"bench attention", Purpose::machine, "time and memory of one attention, by scheme, executor and length", run}};

}  // namespace

Measured measured_attention(const CoreCase& what, const std::string& executor, Device device) {
  const auto core = std::make_shared<AttentionCore>(what, device);
  const Executor* wanted = nullptr;
  if (executor != "auto") {
    CoreOptions options;
    options.executors = executor;
    wanted = executors_of(options).front();
    if (const std::string refused = core->refusal(*wanted); !refused.empty())
      throw InputError("executor: ", executor, " given with ", what.scheme, "; ", refused);
  }
  return {.name = to_text(what.text(), ", length ", what.length),
      .given = core->comparison().given,
      .run = [core, wanted] { return wanted ? core->run(*wanted) : core->run(); },
      .results = [core] { return core->results(); }};
}

}  // namespace whence::bench

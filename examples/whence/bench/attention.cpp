// bench attention: time and memory of one attention with any scheme, forward and backward, by executor and length,
// beside the machine's ceilings and beside PyTorch.
#include <algorithm>
#include <cmath>
#include <iostream>

#include "examples/whence/bench/attention_core.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/machine/device_choice.h"
#include "examples/whence/report/table.h"
#include "nn/io/json.h"
#include "tensor/error.h"
#include "tensor/parallel.h"

namespace whence::bench {
namespace {

struct Options {
  std::string schemes = "none,alibi,kerple,cope,dape(kerple),cdape(kerple)", executors = "all", lengths = "512,2048";
  std::string gates = "both", ways = "all", svg;
  std::int64_t heads = 12, head_dim = 64, batch = 1;
  bool bidirectional = false, forward_only = false;
  Settings settings;
};

// One line of the table.
struct Row {
  CoreCase what;
  std::string engine;        // an executor, or one of the peer's ways
  std::string refused = {};  // why there are no figures
  Median forward = {}, backward = {}, both = {};
  bool only_forward = false;
  double kept = 0, peak = 0;
  double fraction = 0;              // of the ceiling
  double ratio = 0, relative = -1;  // of the peer: its time over ours of the same rounds; how far results are apart
};

std::vector<CoreCase> cases_of(const Options& options) {
  std::vector<CoreCase> cases;
  for (const std::int64_t length : numbers_of(options.lengths, "--lengths")) {
    for (const std::string& scheme : list_of(options.schemes)) {
      CoreCase what{canonical_text(parse_schemes(scheme)), length, options.heads, options.head_dim, options.batch,
          Gates::initial, !options.bidirectional};
      if (options.gates != "sparse" || !has_gates(scheme)) cases.push_back(what);
      what.gates = Gates::sparse;
      if (options.gates != "initial" && has_gates(scheme)) cases.push_back(what);
    }
  }
  return cases;
}

std::vector<PeerWay> ways_of(const CoreCase& what, const Options& options, bool on_cpu) {
  return chosen_ways(options.settings, options.ways, peer_ways_of(what.scheme), on_cpu);
}

class AttentionBench {
 public:
  AttentionBench(const Options& options, Device device)
      : options_(options),
        device_(device),
        executors_(chosen_executors(options.executors)),
        cases_(cases_of(options)),
        bench_("attention", options.settings, device.is_cpu(), steps(), peer_version(options.settings)) {}

  // Whether all results were equal.
  bool run() {
    bench_.run(
        [&] {
          for (const CoreCase& what : cases_) measure(what);
        },
        [&] { show(); });
    if (!options_.svg.empty()) plot();
    return all_equal_;
  }

 private:
  std::int64_t steps() const {
    std::size_t count = 0;
    for (const CoreCase& what : cases_) count += 1 + ways_of(what, options_, device_.is_cpu()).size();
    return static_cast<std::int64_t>(count);
  }

  void measure(const CoreCase& what) {
    bench_.begin(to_text(what.text(), ", length ", what.length));
    AttentionCore core(what, device_);
    struct Measured {
      const Executor* executor;
      Times times = {};
      double kept = 0, peak = 0;
    };
    std::vector<Measured> all;
    for (const Executor* executor : executors_) {
      if (const std::string refused = core.refusal(*executor); !refused.empty()) {
        keep({.what = what, .engine = executor->name(), .refused = refused});
        continue;
      }
      all.push_back({executor});
    }
    for (int round = -1; round < options_.settings.repetitions; ++round) {  // the first to warm up
      for (Measured& each : all) {
        stop_if_asked();
        const CoreRun found = core.run(*each.executor, !options_.forward_only);
        each.kept = found.kept, each.peak = std::max(each.peak, found.peak);
        if (round >= 0) each.times.add({found.forward, found.backward});
      }
    }
    const Executor* best = nullptr;
    double least = 0;
    for (const Measured& each : all) {
      Row row = row_of(core, what, each.executor->name(), each.times);
      row.kept = each.kept, row.peak = each.peak;
      if (!best || row.both.value < least) best = each.executor, least = row.both.value;
      keep(row);
    }
    if (best)
      for (const PeerWay& way : ways_of(what, options_, device_.is_cpu())) compare(core, what, *best, way);
  }

  // Ours, theirs, ours, theirs.
  void compare(AttentionCore& core, const CoreCase& what, const Executor& executor, const PeerWay& way) {
    bench_.begin(to_text(what.text(), ", length ", what.length, ", ", way.text()));
    Peer peer(options_.settings, way.tuned);
    const double peak = peer.ask(peer_request(what, way.way, device_), core.given()).figures.at("peak_mib");
    const bool only_forward = options_.forward_only || (way.way == "flex" && device_.is_cpu());
    (void)core.run(executor, !only_forward);
    const Difference difference =
        largest_difference(core.results(), peer.ask({{"do", std::string("results")}}).tensors);
    try {
      require_equal(to_text("length ", what.length), difference, allowed_difference(what.scheme));
    } catch (const Error& error) {  // the other ways are still worth their time
      all_equal_ = false;
      return keep({.what = what, .engine = way.text(), .refused = error.what()});
    }
    const auto ours = [&]() -> Repetition {
      const CoreRun found = core.run(executor, !only_forward);
      return {found.forward, found.backward};
    };
    const Turns turns = in_turn(peer, options_.settings.repetitions, ours, only_forward);
    Row row = row_of(core, what, way.text(), turns.theirs);
    row.only_forward = only_forward;
    if (only_forward) row.fraction = bench_.ceilings().milliseconds_of(core.forward_operations()) / row.both.value;
    row.kept = -1, row.peak = peak;
    row.ratio = turns.ratio();
    row.relative = difference.relative;
    keep(row);
  }

  Row row_of(const AttentionCore& core, const CoreCase& what, const std::string& engine, const Times& times) const {
    Row row{.what = what,
        .engine = engine,
        .refused = {},
        .forward = median(times.forward),
        .backward = median(times.backward),
        .both = median(times.both),
        .only_forward = options_.forward_only};
    const double operations = core.forward_operations() + (options_.forward_only ? 0 : core.backward_operations());
    if (device_.is_cpu()) row.fraction = bench_.ceilings().milliseconds_of(operations) / row.both.value;
    return row;
  }

  void keep(const Row& row) {
    rows_.push_back(row);
    Json record = record_of(row.what, row.engine, device_);
    if (!row.refused.empty()) {
      record.add("refused", row.refused);
    } else {
      const double none = std::nan("");
      record.add("forward_ms", row.forward.value)
          .add("backward_ms", row.only_forward ? none : row.backward.value)
          .add("both_ms", row.both.value)
          .add("spread_ms", row.both.spread)
          .add("kept_mib", row.kept < 0 ? none : row.kept)
          .add("peak_mib", row.peak)
          .add("fraction", row.fraction > 0 ? row.fraction : none);
      if (row.ratio > 0) record.add("ratio", row.ratio).add("difference", row.relative);
    }
    bench_.record(record);
  }

  void show() const {
    std::vector<std::string> header{
        "scheme", "length", "by", "forward ms", "backward ms", "both ms", "kept MiB", "peak MiB", "of FMA peak"};
    if (options_.settings.with_peer()) header.insert(header.end(), {"theirs / ours", "apart"});
    Table table(header);
    for (const Row& row : rows_) {
      std::vector<std::string> cells{row.what.text(), std::to_string(row.what.length), row.engine};
      if (row.refused.empty()) {
        cells.insert(cells.end(), {text_of(row.forward), row.only_forward ? "-" : text_of(row.backward),
                                      text_of(row.both), row.kept < 0 ? "-" : fixed(row.kept, 1), fixed(row.peak, 1),
                                      row.fraction > 0 ? fixed(100 * row.fraction, 0) + " %" : "-"});
        if (options_.settings.with_peer())
          cells.insert(cells.end(),
              {row.ratio > 0 ? fixed(row.ratio, 2) : "-", row.relative < 0 ? "-" : digits(row.relative, 2)});
      } else {
        cells.resize(header.size(), "-");
        cells[3] = "no figures";
      }
      table.row(cells);
    }
    std::cout << table.text();
    show_best();
    std::vector<std::string> told;
    for (const Row& row : rows_) {
      const std::string why = row.engine + ": " + row.what.scheme + ": " + row.refused + "\n";
      if (row.refused.empty() || std::ranges::find(told, why) != told.end()) continue;
      std::cout << told.emplace_back(why);
    }
  }

  // Against the fastest of the peer's ways that has a backward.
  void show_best() const {
    for (const CoreCase& what : cases_) {
      const Row* best = nullptr;
      for (const Row& row : rows_) {
        const bool of_case = row.what.text() == what.text() && row.what.length == what.length && row.ratio > 0;
        if (of_case && row.only_forward == options_.forward_only && (!best || row.ratio < best->ratio)) best = &row;
      }
      if (!best) continue;
      std::cout << what.text() << ", length " << what.length << ": " << best->engine << " is its fastest way and takes "
                << fixed(best->ratio, 2) << " of our time\n";
    }
  }

  void plot() const {
    Panel time{"milliseconds, forward and backward", "ms", {}}, memory{"peak bytes above the operands", "MiB", {}};
    for (const Row& row : rows_) {
      if (!row.refused.empty() || row.only_forward != options_.forward_only) continue;
      const std::string name = row.what.text() + ", " + row.engine;
      for (auto [panel, value] : {std::pair(&time, row.both.value), std::pair(&memory, row.peak)}) {
        auto curve = std::ranges::find(panel->curves, name, &report::Curve::name);
        if (curve == panel->curves.end())
          curve = panel->curves.insert(curve, report::Curve{name, std::vector<double>{}, std::vector<double>{}});
        curve->x.push_back(static_cast<double>(row.what.length)), curve->y.push_back(value);
      }
    }
    write_panels(options_.svg, {time, memory});
  }

  const Options& options_;
  Device device_;
  std::vector<const Executor*> executors_;
  std::vector<CoreCase> cases_;
  Bench bench_;
  std::vector<Row> rows_;
  bool all_equal_ = true;
};

int run(CommandLine& line) {
  Options options;
  line.heading("What is measured")
      .text("schemes", &options.schemes, {"positional schemes, commas between them"})
      .text("executors", &options.executors, {"how attention is computed: names, or all"})
      .text("lengths", &options.lengths, {"of the sequence", "tokens"})
      .choice("gates", &options.gates, {"initial", "sparse", "both"},
          {"CoPE's: around 1/2, as before training, or around 0.02, as in trained models"})
      .integer("heads", &options.heads, Range<std::int64_t>{1, 1024}, {"attention heads"})
      .integer("head-dim", &options.head_dim, Range<std::int64_t>{1, 4096}, {"numbers per head"})
      .integer("batch", &options.batch, Range<std::int64_t>{1, 65536}, {"sequences"})
      .flag("bidirectional", &options.bidirectional, {"every query sees every key"})
      .flag("forward-only", &options.forward_only, {"no backward pass"});
  declare(line, options.settings);
  declare_peer(line, options.settings);
  line.text("ways", &options.ways, {"of the peer: eager, compile, sdpa, flex, or all"})
      .text("svg", &options.svg, {"write time and peak over length to this file"})
      .example("whence bench attention --schemes none,cope --lengths 512", "each executor, on this machine")
      .example("whence bench attention --peer pytorch --python .venv/bin/python", "the same beside PyTorch");
  if (line.shows_page()) return 0;
  line.refuse_unless("python", options.settings.with_peer(), "--peer");
  line.refuse_unless("ways", options.settings.with_peer(), "--peer");
  line.refuse_unless("peer", !options.bidirectional, "a causal run");
  set_threads(options.settings.threads);
  return AttentionBench(options, choose_device(options.settings.device).device).run() ? 0 : 1;
}

const RegisterCommand registered{
    {"bench attention", Purpose::machine, "time and memory of one attention, by scheme, executor and length", run}};

}  // namespace
}  // namespace whence::bench

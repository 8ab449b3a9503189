// bench memory: bytes that one attention takes above its operands, over the length, and the power of the length with
// which they grow.
#include <algorithm>
#include <cmath>
#include <iostream>

#include "examples/whence/bench/attention_core.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/machine/device_choice.h"
#include "examples/whence/report/table.h"
#include "nn/io/json.h"
#include "tensor/parallel.h"

namespace whence::bench {
namespace {

struct Options {
  std::string schemes = "none,alibi,kerple,cope,dape(kerple),cdape(kerple)", executors = "all", svg;
  std::int64_t from = 512, to = 32768, heads = 12, head_dim = 64, batch = 1, limit_mib = 8192;
  double limit_seconds = 60;
  Settings settings;
};

// One scheme by one executor.
struct Line {
  std::string scheme, executor, ended = {};
  std::vector<double> lengths = {}, kept = {}, peak = {};

  [[nodiscard]] double exponent() const { return lengths.size() < 2 ? std::nan("") : fitted_exponent(lengths, peak); }
};

// What the next length will take, if it grows as it did last: at most fourfold with each doubling.
double predicted(const std::vector<double>& values) {
  const std::size_t count = values.size();
  const double growth = count < 2 || values[count - 2] <= 0 ? 4 : std::min(values[count - 1] / values[count - 2], 4.0);
  return count == 0 ? 0 : values.back() * growth;
}

Line measure(Bench& bench, const Options& options, const std::string& scheme, const Executor& executor, Device device) {
  Line line{.scheme = canonical_text(parse_schemes(scheme)), .executor = executor.name()};
  double seconds = 0;
  for (std::int64_t length = options.from; length <= options.to; length *= 2) {
    stop_if_asked();
    const CoreCase what{line.scheme, length, options.heads, options.head_dim, options.batch};
    AttentionCore core(what, device);
    line.ended = core.refusal(executor);
    if (line.ended.empty() && predicted(line.peak) > static_cast<double>(options.limit_mib))
      line.ended = to_text("at ", length, " it would take more than --limit-mib");
    if (line.ended.empty() && 4 * seconds > options.limit_seconds)
      line.ended = to_text("at ", length, " it would take longer than --limit-seconds");
    if (!line.ended.empty()) break;
    const CoreRun found = core.run(executor);
    seconds = (found.forward + found.backward) / 1e3;
    line.lengths.push_back(static_cast<double>(length));
    line.kept.push_back(found.kept), line.peak.push_back(found.peak);
    Json record = record_of(what, executor.name(), device);
    record.add("forward_ms", found.forward)
        .add("backward_ms", found.backward)
        .add("kept_mib", found.kept)
        .add("peak_mib", found.peak);
    bench.record(record);
  }
  Json fit{{"scheme", line.scheme}, {"executor", line.executor}, {"exponent", line.exponent()}};
  if (!line.ended.empty()) fit.add("ended", line.ended);
  bench.record(fit);
  return line;
}

void show(const std::vector<Line>& lines, const Options& options) {
  std::vector<std::string> header{"scheme", "by"};
  for (std::int64_t length = options.from; length <= options.to; length *= 2) header.push_back(std::to_string(length));
  header.emplace_back("peak grows as length to the");
  Table table(header);
  std::string ends;
  for (const Line& line : lines) {
    std::vector<std::string> cells{line.scheme, line.executor};
    for (std::size_t k = 0; k < line.lengths.size(); ++k)
      cells.push_back(fixed(line.kept[k], 1) + " / " + fixed(line.peak[k], 1));
    cells.resize(header.size() - 1, "-");
    cells.push_back(fixed(line.exponent(), 2));
    table.row(cells);
    if (!line.ended.empty()) ends += line.scheme + ", " + line.executor + ": " + line.ended + "\n";
  }
  std::cout << "MiB above the operands (q, k, v, output and their gradients): kept for backward / peak, by length\n"
            << table.text() << ends;
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line("whence bench memory", "Measures what one attention takes above its operands, over the length.");
  line.heading("What is measured")
      .text("schemes", &options.schemes, {"positional schemes, commas between them"})
      .text("executors", &options.executors, {"how attention is computed: names, or all"})
      .integer("from", &options.from, Range<std::int64_t>{1, 1048576}, {"the shortest length", "tokens"})
      .integer("to", &options.to, Range<std::int64_t>{1, 1048576}, {"the longest; it doubles on the way", "tokens"})
      .integer("limit-mib", &options.limit_mib, Range<std::int64_t>{1, 1 << 24}, {"no run that will take more", "MiB"})
      .number("limit-seconds", &options.limit_seconds, Range<double>{0, 1e6, true},
          {"no run that will take longer", "seconds"})
      .integer("heads", &options.heads, Range<std::int64_t>{1, 1024}, {"attention heads"})
      .integer("head-dim", &options.head_dim, Range<std::int64_t>{1, 4096}, {"numbers per head"})
      .integer("batch", &options.batch, Range<std::int64_t>{1, 65536}, {"sequences"})
      .text("svg", &options.svg, {"write the peaks over the length to this file"});
  declare(line, options.settings);
  if (line.shows_page(argc, argv)) return 0;
  line.refuse_unless("repetitions", false, "times that count");
  set_threads(options.settings.threads);
  const Device device = choose_device(options.settings.device).device;
  const std::vector<std::string> schemes = list_of(options.schemes);
  const std::vector<const Executor*> chosen = chosen_executors(options.executors);
  Bench bench("memory", options.settings, device.is_cpu(), static_cast<std::int64_t>(schemes.size() * chosen.size()));
  std::vector<Line> lines;
  bench.run(
      [&] {
        for (const std::string& scheme : schemes) {
          for (const Executor* executor : chosen) {
            bench.begin(to_text(scheme, ", ", executor->name()));
            lines.push_back(measure(bench, options, scheme, *executor, device));
          }
        }
      },
      [&] { show(lines, options); });
  if (!options.svg.empty()) {
    Panel panel{"peak bytes above the operands", "MiB", {}};
    for (const Line& each : lines)
      panel.curves.push_back({each.scheme + ", " + each.executor, each.lengths, each.peak});
    write_panels(options.svg, {panel});
  }
  return 0;
}

const RegisterCommand registered{
    {"bench memory", Purpose::machine, "bytes of one attention over the length, and how they grow", run}};

}  // namespace
}  // namespace whence::bench

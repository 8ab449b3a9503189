// bench table: the cost tables of the papers, with what the same costs here beside each figure. Machines differ, so
// what can be compared is the ratio to a scheme without a network or a scan, which is printed with both.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>

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
  std::string lengths = "128,512,2048", executor = "auto";
  std::int64_t batch = 1;
  bool papers_only = false;
  Settings settings;
};

struct PaperRow {
  std::string scheme;  // ours, in the grammar of nn/scheme.h
  std::int64_t width;  // of DAPE's network; 0: none
  std::int64_t length, batch;
  double forward, backward;  // milliseconds of a model; backward 0: the two in one, as `forward`
  double gigabytes;          // NaN: not printed
};

const double none = std::nan("");

// CAPE (the first version of DAPE), arXiv:2405.14722v1, Table 1: 125M parameters, 12 layers, 12 heads, eight A800.
const std::vector<PaperRow>& cape_rows() {
  static const std::vector<PaperRow> rows = [] {
    struct Printed {
      const char* scheme;
      std::int64_t width;
      double at_128[2], at_512[2], at_2048[2], gigabytes, alone[2];  // alone: length 2048, batch 1
    };
    const Printed printed[] = {{"rope", 0, {19.65, 50.34}, {50.85, 168.72}, {371.69, 1237.55}, 22.1, {26.79, 67.62}},
        {"t5", 0, {17.16, 44.74}, {54.11, 181.43}, {684.78, 2010.62}, 21.9, {36.22, 424.04}},
        {"alibi", 0, {16.68, 41.05}, {53.34, 139.23}, {463.00, 1052.32}, 23.2, {21.40, 53.58}},
        {"dape(alibi, width=16)", 16, {21.20, 50.58}, {117.05, 256.53}, {1685.45, 3492.63}, 31.4, {53.67, 107.16}},
        {"dape(alibi)", 32, {22.12, 52.49}, {133.51, 285.55}, {1950.39, 3960.20}, 41.4, {61.41, 121.32}},
        {"kerple", 0, {18.17, 44.34}, {54.17, 145.95}, {463.74, 1103.53}, 22.3, {28.41, 74.23}},
        {"dape(kerple, width=16)", 16, {22.04, 54.35}, {117.15, 292.76}, {1683.95, 4045.51}, 30.5, {60.51, 132.69}},
        {"dape(kerple)", 32, {23.38, 54.48}, {133.36, 320.44}, {1950.80, 4508.87}, 40.6, {60.69, 133.34}},
        {"fire", 0, {21.08, 53.71}, {64.12, 162.19}, {734.01, 1406.39}, 22.3, {52.02, 113.91}},
        {"dape(fire, width=16)", 16, {25.78, 65.90}, {130.85, 312.98}, {2192.95, 4603.17}, 30.7, {87.91, 166.26}},
        {"dape(fire)", 32, {26.80, 66.03}, {146.54, 342.65}, {2457.05, 5091.79}, 41.1, {100.59, 195.41}}};
    std::vector<PaperRow> all;
    for (const Printed& row : printed) {
      all.push_back({row.scheme, row.width, 128, 32, row.at_128[0], row.at_128[1], none});
      all.push_back({row.scheme, row.width, 512, 32, row.at_512[0], row.at_512[1], none});
      all.push_back({row.scheme, row.width, 2048, 32, row.at_2048[0], row.at_2048[1], row.gigabytes});
      all.push_back({row.scheme, row.width, 2048, 1, row.alone[0], row.alone[1], none});
    }
    return all;
  }();
  return rows;
}

// DAPE V2, arXiv:2410.04798, Table 8: 350M parameters, length 512, batch 1, forward and backward in one.
const std::vector<PaperRow>& cdape_rows() {
  static const std::vector<PaperRow> rows{{"rope", 0, 512, 1, 210.01, 0, none}, {"t5", 0, 512, 1, 355.16, 0, none},
      {"alibi", 0, 512, 1, 172.60, 0, none}, {"kerple", 0, 512, 1, 189.91, 0, none},
      {"fire", 0, 512, 1, 248.13, 0, none}, {"dape(kerple)", 32, 512, 1, 224.22, 0, none},
      {"cdape(kerple)", 32, 512, 1, 252.84, 0, none}};
  return rows;
}

struct Ours {
  Median forward, backward, both;
  double peak = 0;
};

class TableBench {
 public:
  TableBench(const Options& options, Device device)
      : options_(options),
        device_(device),
        lengths_(numbers_of(options.lengths, "--lengths")),
        bench_("table", options.settings, device.is_cpu() && !options.papers_only,
            static_cast<std::int64_t>(schemes().size() * lengths_.size())) {}

  void run() {
    bench_.run(
        [&] {
          record_papers();
          for (const std::int64_t length : lengths_)
            for (const std::string& scheme : schemes())
              if (!options_.papers_only) measure(scheme, length);
        },
        [&] { show(); });
  }

 private:
  // Each that a paper's table has, once.
  static std::vector<std::string> schemes() {
    std::vector<std::string> all;
    for (const auto* rows : {&cape_rows(), &cdape_rows()})
      for (const PaperRow& row : *rows)
        if (std::ranges::find(all, row.scheme) == all.end()) all.push_back(row.scheme);
    all.emplace_back("cope");  // whose paper has no such table
    return all;
  }

  void record_papers() const {
    for (const auto& [paper, rows] :
        {std::pair("CAPE, Table 1", &cape_rows()), std::pair("DAPE V2, Table 8", &cdape_rows())})
      for (const PaperRow& row : *rows)
        bench_.record({{"paper", std::string(paper)}, {"scheme", row.scheme}, {"width", row.width},
            {"length", row.length}, {"batch", row.batch}, {"forward_ms", row.backward > 0 ? row.forward : none},
            {"backward_ms", row.backward > 0 ? row.backward : none}, {"both_ms", row.forward + row.backward},
            {"gigabytes", row.gigabytes}});
  }

  void measure(const std::string& scheme, std::int64_t length) {
    bench_.begin(to_text(scheme, ", length ", length));
    const CoreCase what{canonical_text(parse_schemes(scheme)), length, 12, 64, options_.batch};
    AttentionCore core(what, device_);
    const Executor& executor = core.executor(options_.executor);
    Ours ours;
    Times times;
    for (int round = -1; round < options_.settings.repetitions; ++round) {
      stop_if_asked();
      const CoreRun found = core.run(executor);
      ours.peak = std::max(ours.peak, found.peak);
      if (round >= 0) times.add({found.forward, found.backward});
    }
    ours.forward = median(times.forward), ours.backward = median(times.backward);
    ours.both = median(times.both);
    Json record = record_of(what, executor.name(), device_);
    record.add("forward_ms", ours.forward.value)
        .add("backward_ms", ours.backward.value)
        .add("both_ms", ours.both.value)
        .add("peak_mib", ours.peak);
    bench_.record(record);
    ours_[{scheme, length}] = ours;
  }

  [[nodiscard]] const Ours* ours(const std::string& scheme, std::int64_t length) const {
    const auto found = ours_.find({scheme, length});
    return found == ours_.end() ? nullptr : &found->second;
  }

  // The paper's row beside ours, each also as a multiple of ALiBi's.
  void add(Table& table, const std::vector<PaperRow>& rows, const PaperRow& row) const {
    const auto alibi = std::ranges::find_if(rows, [&](const PaperRow& other) {
      return other.scheme == "alibi" && other.length == row.length && other.batch == row.batch;
    });
    const Ours *mine = ours(row.scheme, row.length), *base = ours("alibi", row.length);
    const auto cell = [](double value, int digits) { return std::isnan(value) ? "-" : fixed(value, digits); };
    table.row({row.scheme, row.width ? std::to_string(row.width) : "-", std::to_string(row.length),
        std::to_string(row.batch), fixed(row.forward, 1), row.backward > 0 ? fixed(row.backward, 1) : "in one",
        cell(row.gigabytes, 1), fixed((row.forward + row.backward) / (alibi->forward + alibi->backward), 2),
        mine ? text_of(mine->forward) : "-", mine ? text_of(mine->backward) : "-", mine ? fixed(mine->peak, 1) : "-",
        mine && base ? fixed(mine->both.value / base->both.value, 2) : "-"});
  }

  void show() const {
    const std::vector<std::string> header{"scheme", "width", "length", "batch", "paper: forward ms", "backward ms",
        "GB", "of ALiBi", "ours: forward ms", "backward ms", "peak MiB", "of ALiBi"};
    std::cout << "The papers time whole models on their GPUs; ours is one attention of 12 heads of 64, batch "
              << options_.batch << ", on this machine.\n"
              << "\nCAPE, arXiv:2405.14722v1, Table 1: 125M, eight A800, GB at length 2048\n";
    Table cape(header), cdape(header);
    for (const PaperRow& row : cape_rows()) add(cape, cape_rows(), row);
    std::cout << cape.text() << "\nDAPE V2, arXiv:2410.04798, Table 8: 350M, forward and backward in one\n";
    for (const PaperRow& row : cdape_rows()) add(cdape, cdape_rows(), row);
    std::cout << cdape.text();
    for (const std::int64_t length : lengths_) {
      const Ours *cope = ours("cope", length), *alibi = ours("alibi", length);
      if (!cope || !alibi) continue;
      std::cout << "cope, whose paper has no such table, at length " << length << ": forward " << text_of(cope->forward)
                << " ms, backward " << text_of(cope->backward) << " ms, peak " << fixed(cope->peak, 1) << " MiB, "
                << fixed(cope->both.value / alibi->both.value, 2) << " of ALiBi\n";
    }
  }

  const Options& options_;
  Device device_;
  std::vector<std::int64_t> lengths_;
  Bench bench_;
  std::map<std::pair<std::string, std::int64_t>, Ours> ours_;
};

int run(int argc, char** argv) {
  Options options;
  CommandLine line("whence bench table", "Prints the cost tables of the papers with ours beside them.");
  line.heading("What is measured")
      .text("lengths", &options.lengths, {"of the sequence", "tokens"})
      .text("executor", &options.executor, {"how attention is computed; auto: what a model would take"})
      .integer("batch", &options.batch, Range<std::int64_t>{1, 65536}, {"sequences"})
      .flag("papers-only", &options.papers_only, {"nothing is measured"});
  declare(line, options.settings);
  if (line.shows_page(argc, argv)) return 0;
  set_threads(options.settings.threads);
  TableBench(options, choose_device(options.settings.device).device).run();
  return 0;
}

const RegisterCommand registered{
    {"bench table", Purpose::machine, "the papers' tables of time and memory, with ours beside them", run}};

}  // namespace
}  // namespace whence::bench

// bench errors: how far the results of one attention in f32 lie from the same attention in f64, by executor.
// Both get the same numbers, those of f32, so that what differs is what rounding does on the way.
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
#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"

namespace whence::bench {
namespace {

struct Options {
  std::string schemes = "none,alibi,kerple,cope,forgetting,dape(kerple),cdape(kerple)", executors = "reference,tiled",
              lengths = "512,2048", gates = "initial", ways = "eager";
  std::int64_t heads = 4, head_dim = 64, batch = 1;
  Settings settings;
};

// What is compared: the output, each gradient, and the gradient of the values summed over tokens, as a bias sees it.
NamedTensors with_sums(const NamedTensors& results) {
  NamedTensors all = results;
  for (const auto& [name, tensor] : results)
    if (name == "gradient of v") all.emplace_back(name + ", summed", raw::reduce(Reduction::sum, tensor, {2}, false));
  return all;
}

// |x - exact| / |exact|, Euclidean
double error_of(const Tensor& x, const Tensor& exact) {
  const std::vector<double> a = x.to_vector(), b = exact.to_vector();
  double apart = 0, size = 0;
  for (std::size_t n = 0; n < a.size(); ++n) apart += (a[n] - b[n]) * (a[n] - b[n]), size += b[n] * b[n];
  return size > 0 ? std::sqrt(apart / size) : std::sqrt(apart);
}

class Errors {
 public:
  Errors(const Options& options, Device device)
      : options_(options),
        device_(device),
        executors_(chosen_executors(options.executors)),
        header_{"scheme", "tokens", "result"},
        bench_("errors", options.settings, device.is_cpu(), cases(), peer_version(options.settings)) {
    for (const Executor* executor : executors_) header_.emplace_back(executor->name());
    if (options.settings.with_peer()) header_.push_back("PyTorch " + options.ways);
  }

  void run() {
    bench_.run(
        [&] {
          for (const std::string& scheme : list_of(options_.schemes))
            for (const std::int64_t length : numbers_of(options_.lengths, "--lengths"))
              for (const Gates gates : {Gates::initial, Gates::sparse}) measure(scheme, length, gates);
        },
        [&] {
          Table table(header_);
          for (const auto& row : rows_) table.row(row);
          std::cout << "|f32 - f64| / |f64| of the same numbers, in units of 2^-24\n" << table.text();
        });
  }

 private:
  std::int64_t cases() const {
    std::int64_t count = 0;
    for (const std::string& scheme : list_of(options_.schemes))
      count += 1 + (has_gates(scheme) && options_.gates == "both");
    return count * static_cast<std::int64_t>(numbers_of(options_.lengths, "--lengths").size());
  }

  void measure(const std::string& scheme, std::int64_t length, Gates gates) {
    const bool wanted = has_gates(scheme)
                            ? options_.gates == "both" || (options_.gates == "sparse") == (gates == Gates::sparse)
                            : gates == Gates::initial;
    if (!wanted) return;
    CoreCase what{.scheme = scheme,
        .length = length,
        .heads = options_.heads,
        .head_dim = options_.head_dim,
        .batch = options_.batch,
        .gates = gates};
    bench_.begin(to_text(what.text(), ", ", length, " tokens"));
    what.dtype = DType::f64;
    AttentionCore in_f64(what, device_);
    (void)in_f64.run(in_f64.executor("auto"));
    const NamedTensors exact = with_sums(in_f64.results());
    what.dtype = DType::f32;
    AttentionCore core(what, device_);
    std::vector<NamedTensors> found;
    for (const Executor* executor : executors_) {
      NamedTensors& results = found.emplace_back();
      if (!core.refusal(*executor).empty()) continue;
      (void)core.run(*executor), results = with_sums(core.results());
      record(what, executor->name(), results, exact);
    }
    if (options_.settings.with_peer()) {
      NamedTensors& results = found.emplace_back();
      const auto known = peer_ways_of(scheme);
      if (std::ranges::find(known, options_.ways) != known.end()) {
        Peer peer(options_.settings, false);
        (void)peer.ask(peer_request(what, options_.ways, device_), core.given());
        results = with_sums(peer.ask({{"do", std::string("results")}}).tensors);
        record(what, "PyTorch " + options_.ways, results, exact);
      }
    }
    for (const auto& [name, tensor] : exact) {
      std::vector<std::string>& row =
          rows_.emplace_back(std::vector<std::string>{what.text(), std::to_string(length), name});
      for (const NamedTensors& results : found) {
        const auto one = std::ranges::find(results, name, &NamedTensors::value_type::first);
        row.push_back(one == results.end() ? "-" : fixed(error_of(one->second, tensor) * 0x1p24, 1));
      }
    }
  }

  void record(const CoreCase& what, const std::string& engine, const NamedTensors& found, const NamedTensors& exact) {
    Json line = record_of(what, engine, device_);
    for (const auto& [name, tensor] : found) {
      const auto one = std::ranges::find(exact, name, &NamedTensors::value_type::first);
      if (one != exact.end()) line.add(name, error_of(tensor, one->second));
    }
    bench_.record(line);
  }

  const Options& options_;
  Device device_;
  std::vector<const Executor*> executors_;
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
  Bench bench_;
};

int run(CommandLine& line) {
  Options options;
  line.heading("What is measured")
      .text("schemes", &options.schemes, {"positional schemes, commas between them"})
      .text("executors", &options.executors, {"names, or all; strips where all pairs are more than the memory"})
      .text("lengths", &options.lengths, {"of the sequence", "tokens"})
      .choice("gates", &options.gates, {"initial", "sparse", "both"},
          {"CoPE's: around 1/2, as before training, or around 0.02, as in trained models"})
      .integer("heads", &options.heads, Range<std::int64_t>{1, 1024}, {"attention heads"})
      .integer("head-dim", &options.head_dim, Range<std::int64_t>{1, 4096}, {"numbers per head"})
      .integer("batch", &options.batch, Range<std::int64_t>{1, 65536}, {"sequences"});
  declare(line, options.settings);
  declare_peer(line, options.settings);
  line.text("ways", &options.ways, {"of the peer: eager, compile, sdpa or flex"})
      .example("whence bench errors --schemes cope,alibi", "a minute: tiles beside all pairs")
      .example("whence bench errors --lengths 8192 --executors strips,tiled --heads 1", "where all pairs do not fit");
  if (line.shows_page()) return 0;
  line.refuse_unless("repetitions", false, "times that count");
  line.refuse_unless("python", options.settings.with_peer(), "--peer");
  line.refuse_unless("ways", options.settings.with_peer(), "--peer");
  set_threads(options.settings.threads);
  Errors(options, choose_device(options.settings.device).device).run();
  return 0;
}

const RegisterCommand registered{
    {"bench errors", Purpose::machine, "how far f32 lies from f64 in one attention, by scheme and executor", run}};

}  // namespace
}  // namespace whence::bench

#include "examples/whence/bench/measure.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>

#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/report/plot.h"
#include "nn/io/files.h"
#include "nn/io/json.h"
#include "tensor/error.h"
#include "tensor/parallel.h"

namespace whence::bench {
namespace {

// Twelve chains of multiply-adds, more than the latency of two units can hide behind; the numbers come near 1. None
// begins there: compilers see that 1 stays 1, and leave out a chain that was counted.
template <int bytes> [[gnu::always_inline]] inline float multiply_add(std::int64_t rounds) {
  using Vector [[gnu::vector_size(bytes)]] = float;
  Vector chains[12];
  for (int k = 0; k < 12; ++k) chains[k] = Vector{} + static_cast<float>(k + 2);
  const Vector factor = Vector{} + 0.999F, term = Vector{} + 0.001F;
  for (std::int64_t round = 0; round < rounds; ++round)
    for (Vector& chain : chains) chain = chain * factor + term;
  Vector sum{};
  for (const Vector& chain : chains) sum += chain;
  float lanes[bytes / sizeof(float)], total = 0;
  std::memcpy(lanes, &sum, sizeof lanes);
  for (const float lane : lanes) total += lane;
  return total;
}

// The sum of numbers, in eight vectors that do not wait for one another.
template <int bytes>
[[gnu::always_inline]] inline std::uint64_t read_all(const std::uint64_t* from, std::size_t count) {
  using Vector [[gnu::vector_size(bytes)]] = std::uint64_t;
  constexpr std::size_t lanes = bytes / sizeof(std::uint64_t);
  Vector sums[8] = {};
  for (std::size_t at = 0; at + 8 * lanes <= count; at += 8 * lanes)
    for (std::size_t k = 0; k < 8; ++k) {
      Vector next;
      std::memcpy(&next, from + at + k * lanes, bytes);
      sums[k] += next;
    }
  Vector sum{};
  for (const Vector& each : sums) sum += each;
  std::uint64_t numbers[lanes], total = 0;
  std::memcpy(numbers, &sum, sizeof numbers);
  for (const std::uint64_t number : numbers) total += number;
  return total;
}

struct Chains {
  const char* vectors;
  double operations_per_round;
  float (*run)(std::int64_t rounds);
  std::uint64_t (*read)(const std::uint64_t* from, std::size_t count);
};

constexpr double operations(int bytes) { return 12.0 * 2 * bytes / sizeof(float); }

#ifdef __x86_64__
[[gnu::target("avx512f,avx512vl,fma")]] float with_avx512(std::int64_t rounds) { return multiply_add<64>(rounds); }
[[gnu::target("avx2,fma")]] float with_avx2(std::int64_t rounds) { return multiply_add<32>(rounds); }
[[gnu::target("avx512f,avx512vl,fma")]] std::uint64_t read_with_avx512(const std::uint64_t* from, std::size_t count) {
  return read_all<64>(from, count);
}
[[gnu::target("avx2,fma")]] std::uint64_t read_with_avx2(const std::uint64_t* from, std::size_t count) {
  return read_all<32>(from, count);
}
#endif
float with_baseline(std::int64_t rounds) { return multiply_add<16>(rounds); }
std::uint64_t read_with_baseline(const std::uint64_t* from, std::size_t count) { return read_all<16>(from, count); }

Chains widest_chains() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
    return {"AVX-512", operations(64), with_avx512, read_with_avx512};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {"AVX2", operations(32), with_avx2, read_with_avx2};
#endif
  return {"baseline", operations(16), with_baseline, read_with_baseline};
}

// The best of a few: a ceiling is not lowered by what else the machine did meanwhile.
double best_seconds(const std::function<void()>& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 6; ++run) {
    const double start = steady_seconds();
    work();
    best = std::min(best, steady_seconds() - start);
  }
  return best;
}

double fma_gflops(const Chains& chains, int workers) {
  constexpr std::int64_t rounds = 1 << 21;
  std::vector<float> kept(static_cast<std::size_t>(workers));  // so that nothing is left out as unused
  const double seconds = best_seconds([&] {
    parallel_for(
        workers, 1, [&](index_t worker, index_t) { kept[static_cast<std::size_t>(worker)] = chains.run(rounds); });
  });
  if (!std::all_of(kept.begin(), kept.end(), [](float x) { return std::isfinite(x); }))
    throw Error("bench: multiply-adds near 1 left their range");
  return chains.operations_per_round * static_cast<double>(rounds) * workers / seconds / 1e9;
}

double copy_gb_per_s(int workers) {
  constexpr std::size_t bytes = std::size_t(128) << 20;  // beyond any cache here
  const auto from = std::make_unique<char[]>(bytes), to = std::make_unique<char[]>(bytes);
  const std::size_t part = bytes / static_cast<std::size_t>(workers);
  const double seconds = best_seconds([&] {
    parallel_for(workers, 1, [&](index_t worker, index_t) {
      const std::size_t start = static_cast<std::size_t>(worker) * part;
      std::memcpy(to.get() + start, from.get() + start, part);
    });
  });
  return 2.0 * static_cast<double>(part) * workers / seconds / 1e9;
}

double read_gb_per_s(const Chains& chains, int workers) {
  constexpr std::size_t count = std::size_t(32) << 20;  // numbers of 8 bytes: beyond any cache here
  const std::vector<std::uint64_t> from(count, 1);
  const std::size_t part = count / static_cast<std::size_t>(workers) / 64 * 64;
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(workers));
  const double seconds = best_seconds([&] {
    parallel_for(workers, 1, [&](index_t worker, index_t) {
      const auto number = static_cast<std::size_t>(worker);
      sums[number] = chains.read(from.data() + number * part, part);
    });
  });
  for (const std::uint64_t sum : sums)  // so that nothing is left out as unused
    if (sum != part) throw Error("bench: numbers that were read had another sum");
  return 8.0 * static_cast<double>(part) * workers / seconds / 1e9;
}

std::string three_digits(double value) {
  const double size = std::abs(value);
  return fixed(value, size < 0.9995 ? 3 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

}  // namespace

std::string text_of(const Median& figure) { return three_digits(figure.value) + " ±" + three_digits(figure.spread); }

std::string Ceilings::text() const {
  return to_text("ceilings, measured now: multiply-adds in f32 ", fixed(fma_gflops, 0), " GFLOP/s with ", threads(),
      " threads (", fixed(fma_gflops_alone, 0), " with one, ", vectors, "); copy ", fixed(copy_gb_per_s, 1),
      " GB/s read and written, read alone ", fixed(read_gb_per_s, 1), "; load ", fixed(load, 1));
}

Ceilings measure_ceilings() {
  const Chains chains = widest_chains();
  Ceilings found{.vectors = chains.vectors};
  found.fma_gflops_alone = fma_gflops(chains, 1);
  found.fma_gflops = threads() == 1 ? found.fma_gflops_alone : fma_gflops(chains, threads());
  found.copy_gb_per_s = copy_gb_per_s(threads());
  found.read_gb_per_s = read_gb_per_s(chains, threads());
  if (getloadavg(&found.load, 1) != 1) found.load = std::nan("");
  return found;
}

void declare(CommandLine& line, Settings& settings) {
  settings.threads = threads();
  line.heading("Measuring")
      .integer("repetitions", &settings.repetitions, Range<int>{1, 1000}, {"after one to warm up; the median counts"})
      .integer("threads", &settings.threads, Range<int>{1, 1024}, {"of the CPU"})
      .flag("json", &settings.json, {"a line of JSON per measurement instead of tables"});
  declare_device(line, &settings.device);
}

void declare_peer(CommandLine& line, Settings& settings) {
  line.choice("peer", &settings.peer, {"pytorch"},
          {"measured in turn with ours, in each of its ways; the results must be equal"})
      .text("python", &settings.python, {"the Python that has the peer"});
}

Bench::Bench(std::string name, const Settings& settings, bool on_cpu, std::int64_t steps, const std::string& beside)
    : name_(std::move(name)), json_(settings.json), progress_("bench " + name_, steps, false) {
  install_interrupt_handler();
  if (on_cpu) ceilings_ = measure_ceilings();
  if (!json_) {
    if (on_cpu) std::cout << ceilings_.text() << '\n';
    if (!beside.empty()) std::cout << "beside " << beside << '\n';
    std::cout << std::flush;
  } else if (on_cpu) {
    record({{"threads", std::int64_t{threads()}}, {"vectors", ceilings_.vectors},
        {"fma_gflops_alone", ceilings_.fma_gflops_alone}, {"fma_gflops", ceilings_.fma_gflops},
        {"copy_gb_per_s", ceilings_.copy_gb_per_s}, {"read_gb_per_s", ceilings_.read_gb_per_s},
        {"load", ceilings_.load}, {"beside", beside}});
  }
}

void Bench::begin(const std::string& what) {
  stop_if_asked();
  progress_.update(begun_++, 0, {});
  progress_.note(what);
}

void Bench::record(const Json& record) const {
  if (!json_) return;
  Json line{{"bench", name_}};
  for (const auto& [name, value] : record.fields()) line.add(name, value);
  std::cout << line.line() << '\n' << std::flush;
}

void Bench::run(const std::function<void()>& measure, const std::function<void()>& show) {
  const auto finish = [&] {
    progress_.finish();
    if (!json_) show();
    std::cout << std::flush;
  };
  try {
    measure();
  } catch (...) {  // interrupted, or out of memory: what there is counts
    finish();
    throw;
  }
  progress_.update(begun_, 0, {});
  finish();
}

void stop_if_asked() {
  if (interrupt_requested()) throw Interrupted("stopped; what was measured until then is printed");
}

void write_panels(const std::string& path, const std::vector<Panel>& panels) {
  std::vector<report::Plot> plots;
  for (const Panel& panel : panels) {
    report::Plot plot{panel.title, "length", panel.y_label, panel.curves, true};
    std::vector<double> lengths;
    for (report::Curve& curve : plot.curves) {
      lengths.insert(lengths.end(), curve.x.begin(), curve.x.end());
      for (double& x : curve.x) x = std::log2(x);
    }
    std::sort(lengths.begin(), lengths.end());
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
    for (const double length : lengths) plot.x_ticks.push_back({std::log2(length), digits(length, 7)});
    plots.push_back(std::move(plot));
  }
  write_file(path, report::svg_file("Measured, by length", "", plots, 1));
}

}  // namespace whence::bench

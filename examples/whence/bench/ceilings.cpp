#include "examples/whence/bench/ceilings.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "tensor/cpu/threads.h"
#include "tensor/error.h"
#include "tensor/parallel.h"

namespace whence::bench {
namespace {

// Twelve chains of multiply-adds, more than the latency of two units can hide; the numbers approach 1. None begins at
// 1: a compiler sees that 1 stays 1, and removes a chain that is counted.
template <int bytes> [[gnu::always_inline]] inline float multiply_add(std::int64_t rounds) {
  using Vector [[gnu::vector_size(bytes)]] = float;
  Vector chains[12];
  for (int k = 0; k < 12; ++k) chains[k] = Vector{} + static_cast<float>(k + 2);
  const Vector factor = Vector{} + 0.999F, term = Vector{} + 0.001F;
  for (std::int64_t round = 0; round < rounds; ++round)
    for (Vector& chain : chains) chain = chain * factor + term;
  Vector sum{};
  for (const Vector& chain : chains) sum += chain;
  float lanes[bytes / sizeof(float)];
  std::memcpy(lanes, &sum, sizeof lanes);
  return std::accumulate(std::begin(lanes), std::end(lanes), 0.0F);
}

// The loop for the widest vectors of this CPU.
struct Loop {
  const char* vectors;
  int bytes;  // per vector
  float (*multiply_add)(std::int64_t rounds);
};

#ifdef __x86_64__
[[gnu::target("avx512f,avx512vl,fma")]] float multiply_add_avx512(std::int64_t rounds) {
  return multiply_add<64>(rounds);
}
[[gnu::target("avx2,fma")]] float multiply_add_avx2(std::int64_t rounds) { return multiply_add<32>(rounds); }
#endif

Loop widest_loop() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return {"AVX-512", 64, multiply_add_avx512};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {"AVX2", 32, multiply_add_avx2};
#endif
  return {"baseline", 16, multiply_add<16>};
}

// Runs work(worker) on this many workers at once and takes the best of a few: other load on the machine does not lower
// a ceiling.
double best_seconds(int workers, const std::function<void(std::size_t worker)>& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 6; ++run) {
    const double start = steady_seconds();
    parallel_for(workers, 1, [&](index_t worker, index_t) { work(static_cast<std::size_t>(worker)); });
    best = std::min(best, steady_seconds() - start);
  }
  return best;
}

double fma_gflops(const Loop& loop, int workers) {
  constexpr std::int64_t rounds = 1 << 21;
  std::vector<float> kept(static_cast<std::size_t>(workers));  // keeps the results used
  const double seconds = best_seconds(workers, [&](std::size_t worker) { kept[worker] = loop.multiply_add(rounds); });
  if (!std::ranges::all_of(kept, [](float x) { return std::isfinite(x); }))
    throw Error("bench: multiply-adds near 1 left their range");
  const double per_round = 12.0 * 2 * loop.bytes / sizeof(float);
  return per_round * static_cast<double>(rounds) * workers / seconds / 1e9;
}

double copy_gb_per_s(int workers) {
  constexpr std::size_t bytes = std::size_t(128) << 20;  // beyond any cache here
  const auto from = std::make_unique<char[]>(bytes), to = std::make_unique<char[]>(bytes);
  const std::size_t part = bytes / static_cast<std::size_t>(workers);
  const double seconds = best_seconds(
      workers, [&](std::size_t worker) { std::memcpy(to.get() + worker * part, from.get() + worker * part, part); });
  return 2.0 * static_cast<double>(part) * workers / seconds / 1e9;
}

}  // namespace

std::string Ceilings::text() const {
  return to_text("ceilings, measured now: multiply-adds in f32 ", fixed(fma_gflops, 0), " GFLOP/s with ", threads(),
      " threads (", fixed(fma_gflops_alone, 0), " with one, ", vectors, "); copy ", fixed(copy_gb_per_s, 1),
      " GB/s read and written, read alone ", fixed(read_gb_per_s, 1), "; load ", fixed(load, 1));
}

// Eight sums hide the latency of their additions; one core reads memory slower than it adds.
double measure_read_gb_per_s() {
  const int workers = threads();
  const std::vector<std::uint64_t> from(std::size_t(32) << 20, 1);  // 256 MiB, beyond any cache here
  const std::size_t part = from.size() / static_cast<std::size_t>(workers) / 64 * 64;
  std::vector<std::uint64_t> found(static_cast<std::size_t>(workers));
  const double seconds = best_seconds(workers, [&](std::size_t worker) {
    const std::uint64_t* const mine = from.data() + worker * part;
    std::uint64_t sums[8] = {};
    for (std::size_t n = 0; n < part; n += 8)
      for (std::size_t k = 0; k < 8; ++k) sums[k] += mine[n + k];
    found[worker] = std::accumulate(std::begin(sums), std::end(sums), std::uint64_t{0});
  });
  if (std::ranges::any_of(found, [part](std::uint64_t sum) { return sum != part; }))  // keeps the results used
    throw Error("bench: numbers that were read had another sum");
  return 8.0 * static_cast<double>(part) * workers / seconds / 1e9;
}

Ceilings measure_ceilings() {
  const Loop loop = widest_loop();
  Ceilings found{.vectors = loop.vectors};
  found.fma_gflops_alone = fma_gflops(loop, 1);
  found.fma_gflops = threads() == 1 ? found.fma_gflops_alone : fma_gflops(loop, threads());
  found.copy_gb_per_s = copy_gb_per_s(threads());
  found.read_gb_per_s = measure_read_gb_per_s();
  if (getloadavg(&found.load, 1) != 1) found.load = Ceilings::unknown;
  return found;
}

}  // namespace whence::bench

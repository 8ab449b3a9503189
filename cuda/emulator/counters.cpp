#include "cuda/emulator/counters.h"

#include <algorithm>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <mutex>
#include <set>
#include <sstream>
#include <tuple>
#include <vector>

#include "cuda/emulator/running.h"
#include "tensor/error.h"

namespace whence::gpu::emulator {
namespace {

// Never destroyed: tensors in static storage are freed, and launches made, after any destructor here.
std::mutex& mutex = *new std::mutex;
std::map<std::string, Counters>& all = *new std::map<std::string, Counters>;
using LaunchShape = std::tuple<std::string, index_t, int, std::size_t>;  // kernel, blocks, threads, shared bytes
std::set<LaunchShape>& seen = *new std::set<LaunchShape>;

void print_at_exit() { std::cerr << counters_table(); }

void print_at_exit_if_asked() {
  static const bool asked = [] {
    const char* const value = std::getenv("WHENCE_EMULATOR_COUNTS");
    return value && *value && std::string(value) != "0" && std::atexit(print_at_exit) == 0;
  }();
  static_cast<void>(asked);
}

struct Column {
  const char* title;
  std::uint64_t (*value)(const Counters&);
  std::uint64_t (*least)(const Counters&) = nullptr;  // if given, the column shows value / least
};
const Column columns[] = {{"launches", [](const Counters& c) { return c.launches; }},
    {"shapes", [](const Counters& c) { return c.shapes; }}, {"blocks", [](const Counters& c) { return c.blocks; }},
    {"threads", [](const Counters& c) { return c.threads + c.indices; }},
    {"arithmetic", [](const Counters& c) { return c.arithmetic; }},
    {"divisions", [](const Counters& c) { return c.divisions; }},
    {"special", [](const Counters& c) { return c.special; }}, {"read", [](const Counters& c) { return c.global_read; }},
    {"written", [](const Counters& c) { return c.global_written; }},
    {"shared r", [](const Counters& c) { return c.shared_read; }},
    {"shared w", [](const Counters& c) { return c.shared_written; }},
    {"barriers", [](const Counters& c) { return c.barriers; }},
    {"shuffles", [](const Counters& c) { return c.shuffles; }}, {"mma k16", [](const Counters& c) { return c.mma_16; }},
    {"mma k8", [](const Counters& c) { return c.mma_8; }},
    {"frag. loads", [](const Counters& c) { return c.fragment_loads; }},
    {"ahead", [](const Counters& c) { return c.copied_ahead; }},
    {"shared max", [](const Counters& c) { return c.shared_bytes; }},
    {"requests", [](const Counters& c) { return c.global_requests; }},
    {"sectors", [](const Counters& c) { return c.sectors; }},
    {"x least", [](const Counters& c) { return c.sectors; }, [](const Counters& c) { return c.least_sectors; }},
    {"sectors w", [](const Counters& c) { return c.sectors_written; }},
    {"turns", [](const Counters& c) { return c.wavefronts; }},
    {"x least sh.", [](const Counters& c) { return c.wavefronts; },
        [](const Counters& c) { return c.least_wavefronts; }},
    {"most ways", [](const Counters& c) { return c.most_ways; }}};
constexpr int name_width = 46, number_width = 12;

// At most six digits: 1234, 123.456k, 4.56M
std::string short_number(std::uint64_t value) {
  if (value < 100000) return std::to_string(value);
  double size = static_cast<double>(value);
  const char* unit = "kMGTPE";
  for (size /= 1000; size >= 1000; size /= 1000) ++unit;
  std::ostringstream text;
  text << std::setprecision(6) << size << *unit;
  return text.str();
}

std::string text_of(const Column& column, const Counters& counted) {
  if (!column.least) return short_number(column.value(counted));
  const std::uint64_t least = column.least(counted);
  if (least == 0) return "-";
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << static_cast<double>(column.value(counted)) / static_cast<double>(least);
  return text.str();
}

void line(std::ostream& out, const std::string& name, const Counters& counted) {
  out << std::left << std::setw(name_width) << name << std::right;
  for (const Column& column : columns) out << std::setw(number_width) << text_of(column, counted);
  out << '\n';
}

}  // namespace

Counters& Counters::operator+=(const Counters& other) {
  using C = Counters;
  for (const auto sum : {&C::launches, &C::shapes, &C::blocks, &C::threads, &C::indices, &C::arithmetic, &C::divisions,
           &C::special, &C::global_read, &C::global_written, &C::shared_read, &C::shared_written, &C::barriers,
           &C::warp_syncs, &C::shuffles, &C::atomics, &C::mma_16, &C::mma_8, &C::fragment_loads, &C::copied_ahead,
           &C::global_requests, &C::sectors, &C::least_sectors, &C::sectors_written, &C::shared_requests,
           &C::wavefronts, &C::least_wavefronts, &C::not_noted})
    this->*sum += other.*sum;
  for (const auto most : {&C::shared_bytes, &C::most_ways}) this->*most = std::max(this->*most, other.*most);
  for (const auto worst : {&C::worst_sectors, &C::worst_wavefronts})
    this->*worst = std::max(this->*worst, other.*worst);
  return *this;
}

std::map<std::string, Counters> counters() {
  const std::lock_guard lock(mutex);
  return all;
}

void reset_counters() {
  const std::lock_guard lock(mutex);
  all.clear();
  seen.clear();
}

void count(const char* kernel, const Counters& more) {
  print_at_exit_if_asked();
  const std::lock_guard lock(mutex);
  all[kernel] += more;
}

void count(const LaunchFacts& launch, const Counters& more) {
  count(launch.kernel, more);
  const std::lock_guard lock(mutex);
  if (seen.emplace(launch.kernel, launch.blocks, launch.threads, launch.shared_bytes).second)
    ++all[launch.kernel].shapes;
}

std::string worst_place(const std::pair<std::uint64_t, std::int32_t>& worst) {
  return worst.first == 0 ? "" : "worst at " + whence::to_string(long_site(worst.second));
}

std::string counters_table() {
  const std::map<std::string, Counters> counted = counters();
  std::vector<std::pair<std::string, Counters>> rows(counted.begin(), counted.end());
  std::stable_sort(
      rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.launches > b.second.launches; });
  std::ostringstream out;
  out << std::left << std::setw(name_width) << "kernel (emulated; bytes)" << std::right;
  for (const Column& column : columns) out << std::setw(number_width) << column.title;
  out << '\n';
  Counters sum;
  for (const auto& [name, counters_of_it] : rows) line(out, name, counters_of_it), sum += counters_of_it;
  line(out, to_text("all ", rows.size()), sum);
  return out.str();
}

}  // namespace whence::gpu::emulator

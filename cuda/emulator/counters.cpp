#include "cuda/emulator/counters.h"

#include <algorithm>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <mutex>
#include <sstream>
#include <vector>

#include "cuda/emulator/running.h"
#include "cuda/emulator/settings.h"
#include "tensor/error.h"

namespace whence::gpu::emulator {
namespace {

// Never destroyed: tensors in static storage are freed, and launches made, after any destructor here.
std::mutex& mutex = *new std::mutex;
std::map<std::string, Counters>& all = *new std::map<std::string, Counters>;

void print_at_exit() { std::cerr << counters_table(); }

using C = Counters;
using Count = std::uint64_t C::*;
struct Column {
  const char* title;
  Count count, least = nullptr;  // with `least` the column shows their ratio
};
const Column columns[] = {{"launches", &C::launches}, {"blocks", &C::blocks}, {"threads", &C::threads},
    {"arithmetic", &C::arithmetic}, {"divisions", &C::divisions}, {"special", &C::special}, {"read", &C::global_read},
    {"written", &C::global_written}, {"shared r", &C::shared_read}, {"shared w", &C::shared_written},
    {"barriers", &C::barriers}, {"shuffles", &C::shuffles}, {"atomics", &C::atomics}, {"mma k16", &C::mma_16},
    {"mma k8", &C::mma_8}, {"frag. loads", &C::fragment_loads}, {"ahead", &C::copied_ahead},
    {"shared max", &C::shared_bytes}, {"requests", &C::global_requests}, {"sectors", &C::sectors},
    {"x least", &C::sectors, &C::least_sectors}, {"sectors w", &C::sectors_written}, {"turns", &C::wavefronts},
    {"x least sh.", &C::wavefronts, &C::least_wavefronts}, {"most ways", &C::most_ways}};
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
  if (!column.least) return short_number(counted.*column.count);
  if (counted.*column.least == 0) return "-";
  std::ostringstream text;
  text << std::fixed << std::setprecision(2)
       << static_cast<double>(counted.*column.count) / static_cast<double>(counted.*column.least);
  return text.str();
}

void line(std::ostream& out, const std::string& name, const Counters& counted) {
  out << std::left << std::setw(name_width) << name << std::right;
  for (const Column& column : columns) out << std::setw(number_width) << text_of(column, counted);
  out << '\n';
}

}  // namespace

Counters& Counters::operator+=(const Counters& other) {
  for (const auto sum : {&C::launches, &C::blocks, &C::threads, &C::arithmetic, &C::divisions, &C::special,
           &C::global_read, &C::global_written, &C::shared_read, &C::shared_written, &C::barriers, &C::warp_syncs,
           &C::shuffles, &C::atomics, &C::mma_16, &C::mma_8, &C::fragment_loads, &C::copied_ahead, &C::global_requests,
           &C::sectors, &C::least_sectors, &C::sectors_written, &C::shared_requests, &C::wavefronts,
           &C::least_wavefronts, &C::not_noted})
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
}

void count(const char* kernel, const Counters& more) {
  static const bool asked =
      std::getenv("WHENCE_EMULATOR_COUNTS") && settings().costs && std::atexit(print_at_exit) == 0;
  static_cast<void>(asked);
  const std::lock_guard lock(mutex);
  all[kernel] += more;
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

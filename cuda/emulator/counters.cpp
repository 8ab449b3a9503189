// The counters of all kernels and their table.
#include "cuda/emulator/counters.h"

#include <algorithm>
#include <iomanip>
#include <mutex>
#include <sstream>
#include <vector>

namespace whence::gpu::emulator {
namespace {

// Never destroyed: tensors in static storage are freed, and launches made, after any destructor here.
std::mutex& mutex = *new std::mutex;
std::map<std::string, Counters>& all = *new std::map<std::string, Counters>;

struct Column {
  const char* title;
  std::uint64_t (*value)(const Counters&);
};
const Column columns[] = {{"launches", [](const Counters& c) { return c.launches; }},
                          {"blocks", [](const Counters& c) { return c.blocks; }},
                          {"threads", [](const Counters& c) { return c.threads + c.indices; }},
                          {"arithmetic", [](const Counters& c) { return c.arithmetic; }},
                          {"divisions", [](const Counters& c) { return c.divisions; }},
                          {"special", [](const Counters& c) { return c.special; }},
                          {"read", [](const Counters& c) { return c.global_read; }},
                          {"written", [](const Counters& c) { return c.global_written; }},
                          {"shared r", [](const Counters& c) { return c.shared_read; }},
                          {"shared w", [](const Counters& c) { return c.shared_written; }},
                          {"barriers", [](const Counters& c) { return c.barriers; }},
                          {"shuffles", [](const Counters& c) { return c.shuffles + c.votes; }},
                          {"shared max", [](const Counters& c) { return c.shared_bytes; }}};
constexpr int name_width = 28, number_width = 11;

// Five digits at most: 1234, 12.3k, 4.56M
std::string short_number(std::uint64_t value) {
  if (value < 100000) return std::to_string(value);
  double size = static_cast<double>(value);
  const char* unit = "kMGTPE";
  for (size /= 1000; size >= 1000; size /= 1000) ++unit;
  std::ostringstream text;
  text << std::setprecision(size >= 100 ? 4 : 3) << size << *unit;
  return text.str();
}

void line(std::ostream& out, const std::string& name, const Counters& counted) {
  out << std::left << std::setw(name_width) << name << std::right;
  for (const Column& column : columns) out << std::setw(number_width) << short_number(column.value(counted));
  out << '\n';
}

}  // namespace

Counters& Counters::operator+=(const Counters& other) {
  launches += other.launches, blocks += other.blocks, threads += other.threads, indices += other.indices;
  arithmetic += other.arithmetic, divisions += other.divisions, special += other.special;
  global_read += other.global_read, global_written += other.global_written;
  shared_read += other.shared_read, shared_written += other.shared_written;
  barriers += other.barriers, warp_syncs += other.warp_syncs, shuffles += other.shuffles, votes += other.votes;
  atomics += other.atomics;
  shared_bytes = std::max(shared_bytes, other.shared_bytes);
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
  const std::lock_guard lock(mutex);
  all[kernel] += more;
}

std::string counters_table() {
  const std::map<std::string, Counters> counted = counters();
  std::vector<std::pair<std::string, Counters>> rows(counted.begin(), counted.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.launches > b.second.launches; });
  std::ostringstream out;
  out << std::left << std::setw(name_width) << "kernel (emulated; bytes)" << std::right;
  for (const Column& column : columns) out << std::setw(number_width) << column.title;
  out << '\n';
  Counters sum;
  for (const auto& [name, counters_of_it] : rows) line(out, name, counters_of_it), sum += counters_of_it;
  line(out, "all", sum);
  return out.str();
}

}  // namespace whence::gpu::emulator

#include "examples/whence/machine/free_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "tensor/device/allocator.h"

namespace whence {
namespace {

namespace fs = std::filesystem;

// Reads the number after `key` in a file of such lines, or the file's only number for an empty key.
std::optional<std::size_t> number_in(const fs::path& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    std::istringstream text(line.substr(key.size()));
    if (std::size_t number = 0; text >> number) return number;
  }
  return std::nullopt;
}

// Returns what a control group leaves: its limit less the memory that cannot be reclaimed. Version 2's names, then version 1's.
std::optional<std::size_t> left_in(const fs::path& group) {
  for (const auto& [limit, used, cache] : {std::tuple{"memory.max", "memory.current", "inactive_file "},
           std::tuple{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "}}) {
    const auto most = number_in(group / limit, ""), now = number_in(group / used, "");
    if (!most || !now) continue;
    const std::size_t cached = number_in(group / "memory.stat", cache).value_or(0);
    const std::size_t held = *now - std::min(*now, cached);
    return *most - std::min(*most, held);
  }
  return std::nullopt;
}

// Lists the groups of this process, innermost first: "0::/a/b", or "4:memory:/a/b".
std::vector<fs::path> control_groups() {
  std::vector<fs::path> groups;
  std::ifstream lines("/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const bool second = line.starts_with("0::");
    const std::size_t colon = line.rfind(':');
    if (colon == std::string::npos || (!second && line.find(":memory:") == std::string::npos)) continue;
    const fs::path root = second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (fs::path inner = fs::path(line.substr(colon + 1)).relative_path(); !inner.empty(); inner = inner.parent_path())
      groups.push_back(root / inner);
    groups.push_back(root);
  }
  return groups;
}

// Returns what the limits of this process leave (ulimit -v, ulimit -d); /proc/self/statm counts its pages.
std::optional<std::size_t> left_in_process() {
  std::size_t size = 0, resident = 0, shared = 0, text = 0, library = 0, data = 0;
  if (!(std::ifstream("/proc/self/statm") >> size >> resident >> shared >> text >> library >> data))
    return std::nullopt;
  std::optional<std::size_t> left;
  for (const auto& [resource, pages] : {std::pair{RLIMIT_AS, size}, std::pair{RLIMIT_DATA, data}}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    const std::size_t used = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t rest = limit.rlim_cur - std::min<std::size_t>(limit.rlim_cur, used);
    left = std::min(left.value_or(rest), rest);
  }
  return left;
}

std::size_t free_of_machine() {
  std::size_t free = number_in("/proc/meminfo", "MemAvailable:").value_or(0) * 1024;
  const auto at_most = [&free](const std::optional<std::size_t>& left) {
    if (left) free = std::max<std::size_t>(free == 0 ? *left : std::min(free, *left), 1);  // 0 would mean unknown
  };
  for (const fs::path& group : control_groups()) at_most(left_in(group));
  at_most(left_in_process());
  return free;
}

}  // namespace

std::size_t free_memory(Device device) {
  Allocator& allocator = memory_of(device);
  const std::size_t free = device.is_cpu() ? free_of_machine() : allocator.room().free;
  const MemoryStatistics held = allocator.statistics();
  return free == 0 ? 0 : free + held.reserved - held.live;
}

}  // namespace whence

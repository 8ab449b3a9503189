#include "examples/whence/doctor/facts.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "examples/whence/cli/progress.h"
#include "tensor/cpu/instruction_set.h"
#include "tensor/cpu/threads.h"
#include "tensor/device/allocator.h"
#include "tensor/device/device_runtime.h"
#include "tensor/kernels.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"

extern "C" char* openblas_get_config();
extern "C" char* openblas_get_corename();
extern "C" int openblas_get_parallel();

namespace whence {
namespace {

namespace fs = std::filesystem;

// Reads a file of lines "name : value": the value of the first name that begins so, or "".
std::string value_in(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (const auto colon = line.find(": "); line.starts_with(name) && colon != line.npos) return line.substr(colon + 2);
  return {};
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

std::vector<std::string> built_for() {
  if (instruction_set() == InstructionSet::plain) return {};
  if (instruction_set() == InstructionSet::avx2) return {"avx2", "fma"};
  return {"avx2", "fma", "avx512f"};
}

std::vector<std::string> can_do() {
  std::vector<std::string> sets;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) sets.emplace_back("avx2");
  if (__builtin_cpu_supports("fma")) sets.emplace_back("fma");
  if (__builtin_cpu_supports("avx512f")) sets.emplace_back("avx512f");
#endif
  return sets;
}

bool sanitised() {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#elif defined(__has_feature)
  return __has_feature(address_sanitizer);
#else
  return false;
#endif
}

// A container's share: "200000 100000" is two cores' worth of time, "max 100000" no limit.
int cores_of_container() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return 1 << 20;
  return std::max(1, static_cast<int>(std::ceil(quota / period)));
}

int usable_cores() { return std::min(allowed_processors(), cores_of_container()); }

// Reads "always [madvise] never" as "madvise".
std::string huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  const auto begin = line.find('['), end = line.find(']');
  return begin == std::string::npos || end == std::string::npos ? "" : line.substr(begin + 1, end - begin - 1);
}

int threads_alive() {
  std::error_code ignored;
  return static_cast<int>(std::distance(fs::directory_iterator("/proc/self/task", ignored), fs::directory_iterator()));
}

// Counts threads with one chunk per wanted thread; each waits until all chunks are running, or a second has passed.
int threads_in_a_loop() {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  std::atomic<int> arrived{0};
  const double end = steady_seconds() + 1;
  parallel_for(threads(), 1, [&](index_t, index_t) {
    ++arrived;
    while (arrived < threads() && steady_seconds() < end) std::this_thread::yield();
    const std::scoped_lock lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  return static_cast<int>(seen.size());
}

// Multiplies matrices of ones: each number of the product is the inner extent. Takes the best of a few, after a warm-up.
void measure_product(MachineFacts& facts) {
  const index_t n = 512;
  const Tensor a = Tensor::ones({n, n}), b = Tensor::ones({n, n});
  double best = 1e9;
  for (int attempt = 0; attempt < 6; ++attempt) {
    const double start = steady_seconds();
    const Tensor y = raw::matmul(a, b);
    if (attempt > 0) best = std::min(best, steady_seconds() - start);
    const std::vector<double> numbers = y.to_vector();
    facts.product_right = std::ranges::count(numbers, static_cast<double>(n)) == n * n;
  }
  facts.gigaflops = 2.0 * static_cast<double>(n * n * n) / best * 1e-9;
}

// Checks that a usable GPU computes, with a sum that needs a copy there, a kernel and a copy back.
void try_device(MachineFacts& facts) {
  if (!facts.device.refusal.empty()) return;
  try {
    const Tensor x = raw::to_device(Tensor::ones({1000}), Device::cuda(0));
    const double sum = raw::reduce(Reduction::sum, x, {}, false).item();
    if (sum != 1000) facts.device_problem = to_text("the sum of 1000 ones is ", sum);
    facts.device_memory_free = memory_of(Device::cuda(0)).room().free;
  } catch (const Error& error) { facts.device_problem = error.what(); }
}

}  // namespace

MachineFacts machine_facts() {
  MachineFacts facts;
  const int alive_at_first = threads_alive();  // before the first parallel loop: all but this one are OpenBLAS's
  facts.compiler = compiler();
#ifdef __OPTIMIZE__
  facts.optimised = true;
#endif
  facts.sanitised = sanitised();
  facts.built_for = built_for();
  facts.can_do = can_do();
  facts.processor = value_in("/proc/cpuinfo", "model name");
  facts.cores = usable_cores();
  facts.huge_pages = huge_pages();
  facts.memory = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::istringstream(value_in("/proc/meminfo", "MemAvailable")) >> facts.memory_free;
  facts.memory_free *= 1024;
  if (const char* const variable = std::getenv("OMP_NUM_THREADS")) facts.omp_num_threads = variable;
  facts.threads_wanted = threads();
  facts.blas_config = openblas_get_config();
  facts.blas_core = openblas_get_corename();
  facts.blas_parallel = openblas_get_parallel();
  facts.blas_threads_alive = alive_at_first - 1;
  facts.threads_used = threads_in_a_loop();
  measure_product(facts);
  facts.device = cuda_facts();
  facts.driver_present = fs::exists("/proc/driver/nvidia/version");
  try_device(facts);
  return facts;
}

}  // namespace whence

// doctor: prints the build and the machine as whence finds them, and names what does not fit: threads, products, the GPU.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <set>
#include <thread>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/machine/memory.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/run/commit.h"
#include "tensor/cpu/instruction_set.h"
#include "tensor/cpu/threads.h"
#include "tensor/device/device_runtime.h"
#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"

extern "C" char* openblas_get_config();
extern "C" char* openblas_get_corename();

namespace whence {
namespace {

#ifdef __clang__
constexpr const char* compiler = "clang " __clang_version__;
#else
constexpr const char* compiler = "g++ " __VERSION__;
#endif

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const auto colon = line.find(": "); line.starts_with("model name") && colon != line.npos)
      return line.substr(colon + 2);
  return "not named";
}

const char* instructions() {
  return instruction_set() == InstructionSet::plain  ? "plain instructions"
         : instruction_set() == InstructionSet::avx2 ? "AVX2"
                                                     : "AVX-512";
}

// Counts threads with one chunk per wanted thread; each waits until all chunks run, or a second has passed.
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

struct Product {
  bool right = true;  // each number of a product of ones is the inner extent
  double gigaflops = 0;
};

// Measures an f32 product of 512 x 512 x 512: the best of five, after a warm-up.
Product measured_product() {
  const index_t n = 512;
  const Tensor a = Tensor::ones({n, n});
  Product found;
  for (int attempt = 0; attempt < 6; ++attempt) {
    const double start = steady_seconds();
    const Tensor y = raw::matmul(a, a);
    if (attempt > 0) found.gigaflops = std::max(found.gigaflops, 2e-9 * n * n * n / (steady_seconds() - start));
    const std::vector<double> numbers = y.to_vector();
    found.right = found.right && std::ranges::count(numbers, static_cast<double>(n)) == n * n;
  }
  return found;
}

// Returns the error of a sum on a usable GPU, which needs a copy there, a kernel and a copy back; empty: none.
std::string problem_of(const DeviceFacts& device) {
  if (!device.refusal.empty()) return "";
  try {
    const double sum =
        raw::reduce(Reduction::sum, raw::to_device(Tensor::ones({1000}), Device::cuda(0)), {}, false).item();
    return sum == 1000 ? "" : to_text("the sum of 1000 ones is ", sum);
  } catch (const Error& error) { return error.what(); }
}

int run(CommandLine& line) {
  line.example("whence doctor", "ends with 1 only if something computes wrongly");
  if (line.shows_page()) return 0;
  const char* const variable = std::getenv("OMP_NUM_THREADS");
  const int used = threads_in_a_loop(), cores = allowed_processors();
  const Product product = measured_product();
  const DeviceFacts& device = cuda_facts();
  const std::string problem = problem_of(device);
  const bool driver = std::filesystem::exists("/proc/driver/nvidia/version");
  std::cout << program_and_version() << "\nbuild      " << compiler << ", runs " << instructions() << "\nprocessor  "
            << processor() << ", " << cores << (cores == 1 ? " core" : " cores") << " to use\nthreads    " << used
            << " counted in a parallel loop, OMP_NUM_THREADS " << (variable ? variable : "not set") << "\nmemory     "
            << bytes_text(free_memory(Device::cpu())) << " free\nblas       " << openblas_get_config() << "; core "
            << openblas_get_corename() << "\nproducts   " << fixed(product.gigaflops, 0)
            << " GFLOP/s in f32, 512 x 512 x 512\ngpu        "
            << (device.refusal.empty() ? describe(device) : to_text("none: ", device.refusal)) << "\n\n";

  bool found = false;
  const auto say = [&](bool holds, const std::string& fault) {
    if (holds) std::cout << fault << '\n', found = true;
  };
  say(!product.right, "broken: a product of ones is wrong; try OPENBLAS_CORETYPE=Haswell, or another OpenBLAS");
  say(!problem.empty(),
      to_text("broken: the GPU does not compute: ", problem, "; look at nvidia-smi; run with WHENCE_CUDA_SYNC=1"));
  say(used != cores, to_text("threads: ", used, " on ", cores, " cores; OMP_NUM_THREADS and --threads say how many"));
  say(driver && !device.refusal.empty(), to_text("gpu: a driver is here, but ", device.refusal, "; ", device.advice));
  if (!found) std::cout << "nothing found that does not fit\n";
  return product.right && problem.empty() ? 0 : 1;
}

const RegisterCommand registered{
    {"doctor", Purpose::machine, "what this build and machine have, and what does not fit", run}};

}  // namespace
}  // namespace whence

// What about a machine does not fit whence, and how it is told.
#include <algorithm>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/doctor/facts.h"
#include "examples/whence/machine/device_choice.h"
#include "nn/io/json.h"
#include "tensor/error.h"

namespace whence {
namespace {

constexpr double slow_product = 15;  // GFLOP/s and thread; plain loops reach 6, OpenBLAS on AVX2 40 and more

bool has(const std::vector<std::string>& list, const std::string& word) {
  return std::ranges::find(list, word) != list.end();
}

std::string words(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& word : list) text += (text.empty() ? "" : " ") + word;
  return text.empty() ? "none that matter here" : text;
}

const char* threading(int parallel) {
  return parallel == 0 ? "none (serial)" : parallel == 1 ? "threads of its own" : "OpenMP";
}

class Judge {
 public:
  explicit Judge(const MachineFacts& facts) : facts_(facts) {}

  std::vector<Finding> findings() {
    judge_build();
    judge_threads();
    judge_blas();
    judge_device();
    std::stable_sort(
        found_.begin(), found_.end(), [](const Finding& a, const Finding& b) { return a.weight > b.weight; });
    return found_;
  }

 private:
  using Weight = Finding::Weight;
  void say(Weight weight, std::string text, std::string advice) {
    found_.push_back({weight, std::move(text), std::move(advice)});
  }

  void judge_build() {
    if (!facts_.optimised || facts_.sanitised) {
      say(Weight::note,
          to_text("this build is ", facts_.sanitised ? "checked by sanitizers" : "not optimised", ", and slow"),
          "build with the release preset for work");
    }
    for (const char* set : {"avx2", "avx512f"}) {
      if (has(facts_.can_do, set) && !has(facts_.built_for, set)) {
        say(Weight::warning, to_text("the processor has ", set, ", which is not used"), "unset WHENCE_INSTRUCTIONS");
        break;
      }
    }
    if (facts_.huge_pages == "never") {
      say(Weight::warning, "huge pages are switched off: large tensors cost page faults",
          "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, as root");
    }
  }

  void judge_threads() {
    if (facts_.threads_used > facts_.cores) {
      const std::string why =
          facts_.omp_num_threads.empty() ? "" : to_text(" (OMP_NUM_THREADS=", facts_.omp_num_threads, ')');
      say(Weight::warning,
          to_text(facts_.threads_used, " threads on ", facts_.cores, " cores", why, ": they wait for each other"),
          to_text("set OMP_NUM_THREADS=", facts_.cores));
    } else if (facts_.threads_used < facts_.threads_wanted) {
      say(Weight::warning,
          to_text(facts_.threads_wanted, " threads asked for, ", facts_.threads_used, " given by the system"),
          "look at ulimit -u, and at pids.max where this runs in a container");
    } else if (facts_.threads_used < facts_.cores) {
      say(Weight::note, to_text(facts_.threads_used, " of ", facts_.cores, " cores used"),
          facts_.omp_num_threads.empty() ? "look at --threads" : "unset OMP_NUM_THREADS to use all");
    }
  }

  void judge_blas() {
    if (!facts_.product_right)
      say(Weight::broken, "a product of ones is wrong", "install another OpenBLAS, or try OPENBLAS_CORETYPE=Haswell");
    const double per_thread = facts_.gigaflops / std::max(1, std::min(facts_.threads_used, facts_.cores));
    if (facts_.product_right && !facts_.sanitised && has(facts_.can_do, "avx2") && per_thread < slow_product) {
      say(Weight::warning,
          to_text(
              "products reach ", fixed(facts_.gigaflops, 0), " GFLOP/s, little for ", facts_.threads_used, " threads"),
          "end what else runs here; look at the BLAS core above, and try OPENBLAS_CORETYPE=Haswell");
    }
  }

  void judge_device() {
    const DeviceFacts& device = facts_.device;
    const bool built_with_cuda = device.toolkit_version != 0;
    if (!facts_.device_problem.empty()) {
      say(Weight::broken, to_text("the GPU does not compute: ", facts_.device_problem),
          "look at nvidia-smi; run with WHENCE_CUDA_SYNC=1");
    }
    if (device.emulated) {
      say(Weight::note, "the GPU is emulated: a check of kernels, far too slow for work",
          "configure with -DWHENCE_CUDA=ON for a GPU");
    } else if (!device.refusal.empty() && built_with_cuda) {
      say(Weight::warning, to_text("this build has CUDA, and no GPU can be used: ", device.refusal), device.advice);
    } else if (!built_with_cuda && facts_.driver_present) {
      say(Weight::warning, "an NVIDIA driver is here, and this build has no CUDA",
          "configure with -DWHENCE_CUDA=ON to use the GPU");
    }
    if (device.refusal.empty() && built_with_cuda && device.driver_version < device.toolkit_version) {
      say(Weight::warning,
          to_text("the driver knows CUDA up to ", cuda_version_text(device.driver_version), ", the build is of ",
              cuda_version_text(device.toolkit_version)),
          "update the driver, or build with an older toolkit");
    }
    if (built_with_cuda && device.runtime_version != device.toolkit_version) {
      say(Weight::warning,
          to_text("the CUDA runtime in use is ", cuda_version_text(device.runtime_version), ", the build is of ",
              cuda_version_text(device.toolkit_version)),
          "look at LD_LIBRARY_PATH");
    }
  }

  const MachineFacts& facts_;
  std::vector<Finding> found_;
};

std::string device_line(const MachineFacts& facts) {
  const DeviceFacts& device = facts.device;
  if (!device.refusal.empty()) return to_text("none: ", device.refusal);
  if (device.emulated) return describe(device);
  return to_text(device.count, device.count == 1 ? " device: " : " devices, of which the first: ", describe(device),
      ", ", bytes_text(facts.device_memory_free), " free");
}

std::string cuda_line(const DeviceFacts& device) {
  if (device.emulated) return "emulated";
  if (device.toolkit_version == 0) return "not in this build";
  return to_text("toolkit ", cuda_version_text(device.toolkit_version), ", runtime ",
      cuda_version_text(device.runtime_version), ", driver ",
      device.driver_version == 0 ? "none" : "up to " + cuda_version_text(device.driver_version));
}

}  // namespace

const char* to_string(Finding::Weight weight) {
  return weight == Finding::Weight::note ? "note" : weight == Finding::Weight::warning ? "warning" : "broken";
}

std::vector<Finding> findings_of(const MachineFacts& facts) { return Judge(facts).findings(); }

std::vector<std::pair<std::string, std::string>> lines_of(const MachineFacts& facts) {
  const std::string threads_of_blas =
      to_text("threading: ", threading(facts.blas_parallel), ", ", facts.blas_threads_alive, " started");
  return {{"build", to_text(facts.compiler, facts.optimised ? ", optimised" : ", not optimised",
                        facts.sanitised ? ", sanitizers" : "", ", runs ", words(facts.built_for))},
      {"processor", to_text(facts.processor.empty() ? "not named" : facts.processor, ", ", facts.cores,
                        facts.cores == 1 ? " core" : " cores", " to use, has ", words(facts.can_do))},
      {"threads", to_text(facts.threads_used, " counted in a parallel loop, OMP_NUM_THREADS ",
                      facts.omp_num_threads.empty() ? "not set" : facts.omp_num_threads)},
      {"memory", to_text(bytes_text(facts.memory), ", ", bytes_text(facts.memory_free),
                     " free; huge pages: ", facts.huge_pages.empty() ? "not known" : facts.huge_pages)},
      {"blas", to_text(facts.blas_config, "; core ", facts.blas_core, "; ", threads_of_blas)},
      {"products", to_text(fixed(facts.gigaflops, 0), " GFLOP/s in f32, 512 x 512 x 512")},
      {"cuda", cuda_line(facts.device)}, {"gpu", device_line(facts)}};
}

std::string json_of(const MachineFacts& facts) {
  const DeviceFacts& device = facts.device;
  Json::List findings;
  for (const Finding& finding : findings_of(facts))
    findings.push_back({{"weight", to_string(finding.weight)}, {"text", finding.text}, {"advice", finding.advice}});
  const Json page{{"version", WHENCE_VERSION},
      {"build", {{"compiler", facts.compiler}, {"optimised", facts.optimised}, {"sanitised", facts.sanitised},
                    {"instructions", facts.built_for}}},
      {"processor", {{"name", facts.processor}, {"cores", facts.cores}, {"instructions", facts.can_do}}},
      {"memory", {{"bytes", facts.memory}, {"free", facts.memory_free}, {"huge_pages", facts.huge_pages}}},
      {"threads",
          {{"wanted", facts.threads_wanted}, {"used", facts.threads_used}, {"omp_num_threads", facts.omp_num_threads}}},
      {"blas", {{"config", facts.blas_config}, {"core", facts.blas_core}, {"threading", threading(facts.blas_parallel)},
                   {"threads_started", facts.blas_threads_alive}, {"gigaflops", facts.gigaflops}}},
      {"gpu",
          {{"refusal", device.refusal}, {"emulated", device.emulated}, {"name", device.name}, {"count", device.count},
              {"capability", device.capability}, {"multiprocessors", device.multiprocessors}, {"bytes", device.memory},
              {"free", facts.device_memory_free}, {"driver", device.driver_version},
              {"runtime", device.runtime_version}, {"toolkit", device.toolkit_version},
              {"problem", facts.device_problem}}},
      {"findings", findings}};
  return page.page() + '\n';
}

}  // namespace whence

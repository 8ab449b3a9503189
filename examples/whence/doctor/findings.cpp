// Findings about a machine that does not fit whence, and their words.
#include <algorithm>

#include "examples/whence/cli/json.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/doctor/facts.h"
#include "examples/whence/machine/placement.h"
#include "tensor/error.h"

namespace whence {
namespace {

using namespace std::string_literals;

constexpr double slow_product = 15;  // GFLOP/s and thread; plain loops reach 6, OpenBLAS on AVX2 40 and more

bool has(const std::vector<std::string>& list, const std::string& word) {
  return std::ranges::find(list, word) != list.end();
}

std::string words(const std::vector<std::string>& list) {
  return list.empty() ? "none that matter here" : joined(list, std::identity(), " ");
}

const char* threading(int parallel) {
  return parallel == 0 ? "none (serial)" : parallel == 1 ? "threads of its own" : "OpenMP";
}

using Weight = Finding::Weight;
using Rules = std::vector<std::pair<bool, Finding>>;  // a condition, and the finding if it holds

Rules of_build(const MachineFacts& facts) {
  const auto idle = [&](const char* set) { return has(facts.can_do, set) && !has(facts.built_for, set); };
  const std::string set = idle("avx2") ? "avx2" : idle("avx512f") ? "avx512f" : "";
  return {{!facts.optimised || facts.sanitised,
              {Weight::note,
                  "this build is "s + (facts.sanitised ? "checked by sanitizers" : "not optimised") + ", and slow",
                  "build with the release preset for work"}},
      {!set.empty(),
          {Weight::warning, "the processor has " + set + ", which is not used", "unset WHENCE_INSTRUCTIONS"}},
      {facts.huge_pages == "never", {Weight::warning, "huge pages are switched off: large tensors cost page faults",
                                        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, as root"}}};
}

Rules of_threads(const MachineFacts& facts) {
  const int used = facts.threads_used, wanted = facts.threads_wanted, cores = facts.cores;
  const std::string& variable = facts.omp_num_threads;
  const std::string why = variable.empty() ? "" : to_text(" (OMP_NUM_THREADS=", variable, ')');
  return {{used > cores,
              {Weight::warning, to_text(used, " threads on ", cores, " cores", why, ": they wait for each other"),
                  to_text("set OMP_NUM_THREADS=", cores)}},
      {used <= cores && used < wanted,
          {Weight::warning, to_text(wanted, " threads requested, ", used, " given by the system"),
              "look at ulimit -u, and at pids.max where this runs in a container"}},
      {used < cores && used >= wanted,
          {Weight::note, to_text(used, " of ", cores, " cores used"),
              variable.empty() ? "look at --threads" : "unset OMP_NUM_THREADS to use all"}}};
}

Rules of_blas(const MachineFacts& facts) {
  const double per_thread = facts.gigaflops / std::max(1, std::min(facts.threads_used, facts.cores));
  return {{!facts.product_right, {Weight::broken, "a product of ones is wrong",
                                     "install another OpenBLAS, or try OPENBLAS_CORETYPE=Haswell"}},
      {facts.product_right && !facts.sanitised && has(facts.can_do, "avx2") && per_thread < slow_product,
          {Weight::warning,
              to_text("products reach ", fixed(facts.gigaflops, 0), " GFLOP/s, little for ", facts.threads_used,
                  " threads"),
              "stop other programs; look at the BLAS core above, and try OPENBLAS_CORETYPE=Haswell"}}};
}

Rules of_device(const MachineFacts& facts) {
  const DeviceFacts& device = facts.device;
  const bool with_cuda = device.toolkit_version != 0, usable = device.refusal.empty();
  const auto of_build = [&](const std::string& what, int version) {
    return what + cuda_version_text(version) + ", the build is of " + cuda_version_text(device.toolkit_version);
  };
  return {{!facts.device_problem.empty(), {Weight::broken, "the GPU does not compute: " + facts.device_problem,
                                              "look at nvidia-smi; run with WHENCE_CUDA_SYNC=1"}},
      {device.emulated, {Weight::note, "the GPU is emulated: a check of kernels, far too slow for work",
                            "configure with -DWHENCE_CUDA=ON for a GPU"}},
      {!device.emulated && !usable && with_cuda,
          {Weight::warning, "this build has CUDA, and no GPU can be used: " + device.refusal, device.advice}},
      {!device.emulated && !with_cuda && facts.driver_present,
          {Weight::warning, "an NVIDIA driver is here, and this build has no CUDA",
              "configure with -DWHENCE_CUDA=ON to use the GPU"}},
      {usable && with_cuda && device.driver_version < device.toolkit_version,
          {Weight::warning, of_build("the driver knows CUDA up to ", device.driver_version),
              "update the driver, or build with an older toolkit"}},
      {with_cuda && device.runtime_version != device.toolkit_version,
          {Weight::warning, of_build("the CUDA runtime in use is ", device.runtime_version),
              "look at LD_LIBRARY_PATH"}}};
}

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

std::vector<Finding> findings_of(const MachineFacts& facts) {
  std::vector<Finding> found;
  for (const Rules& rules : {of_build(facts), of_threads(facts), of_blas(facts), of_device(facts)})
    for (const auto& [holds, finding] : rules)
      if (holds) found.push_back(finding);
  std::ranges::stable_sort(found, std::ranges::greater(), &Finding::weight);
  return found;
}

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

// doctor: each mismatch of invented machines is named with advice; and the program as a user runs it.
#include <functional>

#include "examples/whence/doctor/facts.h"
#include "tests/support/json.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

MachineFacts fitting() {
  MachineFacts facts;
  facts.compiler = "g++ 12.2.0";
  facts.optimised = true;
  facts.built_for = facts.can_do = {"avx2", "fma", "avx512f"};
  facts.processor = "a processor";
  facts.cores = facts.threads_wanted = facts.threads_used = 4;
  facts.huge_pages = "madvise";
  facts.blas_parallel = 2;
  facts.gigaflops = 400;
  facts.product_right = true;
  facts.device.refusal = "this build has no CUDA";
  facts.device.advice = "configure with -DWHENCE_CUDA=ON";
  return facts;
}

MachineFacts with_gpu() {
  MachineFacts facts = fitting();
  facts.device = {};
  facts.device.name = "NVIDIA H100";
  facts.device.count = 1;
  facts.device.capability = 90;
  facts.device.driver_version = facts.device.runtime_version = facts.device.toolkit_version = 13000;
  facts.driver_present = true;
  return facts;
}

}  // namespace

TEST_CASE("doctor: nothing is found where everything fits") {
  CHECK(findings_of(fitting()).empty());
  MachineFacts pool = fitting();
  pool.blas_parallel = 1, pool.blas_threads_alive = 3;  // they never get work, and sleep
  CHECK(findings_of(pool).empty());
  CHECK(findings_of(with_gpu()).empty());
}

TEST_CASE("doctor: each mismatch is named with what to do") {
  using Weight = Finding::Weight;
  struct Mismatch {  // a machine with one difference from a fitting one, and its only finding
    bool gpu;
    std::function<void(MachineFacts&)> change;
    Finding expected;  // empty advice: any
  };
  for (const Mismatch& each :
      std::vector<Mismatch>{{false, [](auto& facts) { facts.threads_used = 8, facts.omp_num_threads = "8"; },
                                {Weight::warning, "8 threads on 4 cores (OMP_NUM_THREADS=8): they wait for each other",
                                    "set OMP_NUM_THREADS=4"}},
          {false, [](auto& facts) { facts.threads_used = 3; },
              {Weight::warning, "4 threads requested, 3 given by the system", ""}},
          {false, [](auto& facts) { facts.threads_used = facts.threads_wanted = 1; },
              {Weight::note, "1 of 4 cores used", "look at --threads"}},
          {false, [](auto& facts) { facts.gigaflops = 6; },
              {Weight::warning, "products reach 6 GFLOP/s, little for 4 threads", ""}},
          {false, [](auto& facts) { facts.product_right = false; }, {Weight::broken, "a product of ones is wrong", ""}},
          {false, [](auto& facts) { facts.huge_pages = "never"; },
              {Weight::warning, "huge pages are switched off: large tensors cost page faults", ""}},
          {false, [](auto& facts) { facts.built_for.pop_back(); },
              {Weight::warning, "the processor has avx512f, which is not used", "unset WHENCE_INSTRUCTIONS"}},
          {true, [](auto& facts) { facts.device.driver_version = 12080; },
              {Weight::warning, "the driver knows CUDA up to 12.8, the build is of 13.0", ""}},
          {true, [](auto& facts) { facts.device.runtime_version = 12080; },
              {Weight::warning, "the CUDA runtime in use is 12.8, the build is of 13.0", "look at LD_LIBRARY_PATH"}},
          {true, [](auto& facts) { facts.device.refusal = "no driver", facts.device.advice = "install it"; },
              {Weight::warning, "this build has CUDA, and no GPU can be used: no driver", "install it"}},
          {false, [](auto& facts) { facts.driver_present = true; },
              {Weight::warning, "an NVIDIA driver is here, and this build has no CUDA", ""}},
          {false, [](auto& facts) { facts.device = {}, facts.device.emulated = true; },
              {Weight::note, "the GPU is emulated: a check of kernels, far too slow for work", ""}},
          {true, [](auto& facts) { facts.device_problem = "the sum of 1000 ones is 999"; },
              {Weight::broken, "the GPU does not compute: the sum of 1000 ones is 999", ""}}}) {
    MachineFacts facts = each.gpu ? with_gpu() : fitting();
    each.change(facts);
    const std::vector<Finding> findings = findings_of(facts);
    CAPTURE(each.expected.text);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].weight == each.expected.weight);
    CHECK(findings[0].text == each.expected.text);
    if (!each.expected.advice.empty()) CHECK(findings[0].advice == each.expected.advice);
  }
}

TEST_CASE("doctor: what it measures here is true") {
  const MachineFacts facts = machine_facts();
  CHECK(facts.product_right);
  CHECK((facts.memory > facts.memory_free && facts.memory_free > 0));
  CHECK(facts.device_problem.empty());
  CHECK(facts.blas_config.find("OpenBLAS") != std::string::npos);
}

TEST_CASE("doctor: the program prints both forms, and warnings do not make it fail") {
  const Outcome text = done("doctor"), page = done("doctor --json");
  CHECK(text.err.empty());
  for (const char* name : {"build", "processor", "threads", "memory", "blas", "products", "cuda", "gpu"})
    CHECK_MESSAGE(has(text.out, '\n' + std::string(name) + ' '), name);
  const auto json = json_of(page.out);
  CHECK(json.at("version") == WHENCE_VERSION);
  CHECK(json.at("threads").contains("used"));
  CHECK(json.at("findings").is_array());
}

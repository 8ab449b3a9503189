// The build, the processor, the threads, the BLAS and the GPU as whence finds them, and findings about what does not
// fit.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tensor/device/device_runtime.h"

namespace whence {

struct MachineFacts {
  // The build.
  std::string compiler;                // "g++ 12.2.0"
  bool optimised = false;              // -O1 or more
  bool sanitised = false;              // AddressSanitizer
  std::vector<std::string> built_for;  // instruction sets that the program uses: "avx2", "fma", "avx512f"
  // The processor.
  std::string processor;            // as the system names it
  std::vector<std::string> can_do;  // instruction sets that matter here
  int cores = 0;                    // usable by this process: online, not forbidden, within the container's share
  std::size_t memory = 0, memory_free = 0;
  std::string huge_pages;  // "always", "madvise", "never"; empty: not known
  // Threads.
  std::string omp_num_threads;  // the variable of the environment; empty: not set
  int threads_wanted = 0;       // requested by the engine
  int threads_used = 0;         // counted inside a parallel loop
  // BLAS.
  std::string blas_config, blas_core;
  int blas_parallel = 0;       // 0 serial, 1 own threads, 2 OpenMP
  int blas_threads_alive = 0;  // BLAS's own threads, counted
  double gigaflops = 0;        // an f32 product of the engine, 512 x 512 x 512
  bool product_right = false;  // true if the product is correct
  // The GPU.
  DeviceFacts device;
  bool driver_present = false;  // an NVIDIA driver is loaded, even if this build cannot use it
  std::size_t device_memory_free = 0;
  std::string device_problem;  // the error of a small computation on a usable GPU; empty: none
};

// Reads and measures the facts; takes a few tenths of a second.
MachineFacts machine_facts();

struct Finding {
  enum class Weight : unsigned char { note, warning, broken };
  Weight weight;
  std::string text;    // the fault
  std::string advice;  // the cure
};
const char* to_string(Finding::Weight weight);

// Returns the faults that follow from `facts` alone, the worst first.
std::vector<Finding> findings_of(const MachineFacts& facts);

// Returns the facts as lines for people: name and value.
std::vector<std::pair<std::string, std::string>> lines_of(const MachineFacts& facts);

// Returns facts and findings as one JSON object over several lines.
std::string json_of(const MachineFacts& facts);

}  // namespace whence

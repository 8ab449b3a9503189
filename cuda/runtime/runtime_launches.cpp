// A record of launches, so that an error that shows later can be attributed to a kernel and to the op's call site.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>

#include "cuda/runtime/runtime.h"
#include "cuda/runtime/runtime_state.h"
#include "tensor/error.h"

namespace whence::gpu {
namespace {

constexpr std::size_t default_shared_bytes = std::size_t{48} << 10;  // more must be requested, kernel by kernel

struct Launch {
  LaunchFacts facts;
  Site site;
  bool has_site;
};

// The last launches since the stream last ended without an error.
struct Account {
  static constexpr std::size_t kept = 16;
  std::mutex mutex;
  std::array<Launch, kept> last;
  std::size_t count = 0;

  void add(const LaunchFacts& facts) {
    const Site* site = CallSite::current();
    const std::scoped_lock lock(mutex);
    last[count % kept] = {facts, site ? *site : Site(), site != nullptr};
    ++count;
  }
  void clear() {
    const std::scoped_lock lock(mutex);
    count = 0;
  }
  // "softmax_rows, 96 blocks of 256 threads (train.cpp:84); ...", the newest first.
  std::string text() {
    const std::scoped_lock lock(mutex);
    std::string all;
    for (std::size_t k = 0; k < std::min(count, kept); ++k) {
      const Launch& launch = last[(count - 1 - k) % kept];
      all += to_text(k == 0 ? "" : "; ", to_string(launch.facts),
          launch.has_site ? to_text(" (", whence::to_string(launch.site), ')') : "");
    }
    if (count > kept) all += to_text("; and ", count - kept, " before these");
    return all;
  }
};

Account& account() {
  static Account& account = *new Account;
  return account;
}

std::atomic<std::uint64_t> launches_so_far = 0;

bool waits_for_each() {
  static const bool waits = [] {
    const char* const value = std::getenv("WHENCE_CUDA_SYNC");
    return value && std::string_view(value) == "1";
  }();
  return waits;
}

}  // namespace

std::size_t most_shared_bytes() {
  static const int limit = [] {
    int bytes = 0;
    require(
        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), "launch", "cudaDeviceGetAttribute");
    return bytes;
  }();
  return static_cast<std::size_t>(limit);
}

bool tiles_in_f64() { return false; }

void remember(const char* what) { account().add({what, 0, 0, 0}); }

void require_launchable(const LaunchFacts& facts, const void* kernel) {
  constexpr index_t most_blocks = (index_t{1} << 31) - 1;
  if (facts.blocks < 0 || facts.blocks > most_blocks || facts.threads < 1 || facts.threads > 1024)
    fail("launch", to_string(facts), " given; up to ", most_blocks, " blocks of 1 to 1024 threads required");
  if (facts.shared_bytes <= default_shared_bytes) return;
  if (facts.shared_bytes > most_shared_bytes()) {
    fail("launch", to_string(facts), " given; at most ", most_shared_bytes(), " bytes required on ",
        device_facts().name);
  }
  require(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(facts.shared_bytes)),
      "launch", facts.kernel);
}

void launched(const LaunchFacts& facts) {
  const cudaError_t status = cudaGetLastError();
  // A launch can also report that an earlier kernel has failed: then the record names the candidates.
  if (status != cudaSuccess) {
    fail("launch", to_string(facts), ": ", cudaGetErrorString(status),
        "; launched before it, newest first: ", account().text());
  }
  account().add(facts);
  ++launches_so_far;
  if (waits_for_each() && !capturing()) synchronise();
}

std::uint64_t launches() { return launches_so_far; }

void synchronise() {
  if (capturing())
    fail("synchronise", "asked for while work is being recorded; nothing runs before it is replayed; wait afterwards");
  const cudaError_t status = cudaStreamSynchronize(stream());
  if (status == cudaSuccess) return account().clear();
  static_cast<void>(cudaGetLastError());
  fail("synchronise", "a kernel failed: ", cudaGetErrorString(status),
      "; it is one of these, newest first: ", account().text(),
      "; run with WHENCE_CUDA_SYNC=1 to find it; this process can no longer use the GPU");
}

}  // namespace whence::gpu

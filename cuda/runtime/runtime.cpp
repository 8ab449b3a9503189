#include "cuda/runtime/runtime.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "cuda/runtime/runtime_state.h"
#include "cuda/runtime/staging.h"
#include "tensor/error.h"

namespace whence::gpu {
namespace {

// Queries the driver, in an order that shows what is missing first. Clears leftover errors: nothing was launched yet.
class Inquiry {
 public:
  DeviceFacts facts;

  Inquiry() {
    facts.toolkit_version = CUDART_VERSION;
    static_cast<void>(cudaDriverGetVersion(&facts.driver_version));
    static_cast<void>(cudaRuntimeGetVersion(&facts.runtime_version));
    ask_for_device();
    if (facts.refusal.empty()) ask_for_properties();
    if (facts.refusal.empty()) ask_for_kernels();
    if (facts.refusal.empty()) ask_for_context();
    static_cast<void>(cudaGetLastError());
  }

 private:
  void refuse(std::string why, std::string advice) {
    facts.refusal = std::move(why);
    facts.advice = std::move(advice);
  }

  void ask_for_device() {
    const cudaError_t status = cudaGetDeviceCount(&facts.count);
    if (facts.driver_version == 0) {
      refuse("no NVIDIA driver is installed", "install the driver, or give the container its GPU");
    } else if (status == cudaErrorInsufficientDriver) {
      refuse(to_text("the driver knows CUDA up to ", cuda_version_text(facts.driver_version),
                 ", older than the runtime's ", cuda_version_text(facts.runtime_version)),
          "update the driver, or build with an older toolkit");
    } else if (status == cudaErrorNoDevice || (status == cudaSuccess && facts.count == 0)) {
      const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
      refuse(visible ? to_text("the driver shows no device with CUDA_VISIBLE_DEVICES=", visible)
                     : "the driver shows no device",
          visible ? "unset CUDA_VISIBLE_DEVICES" : "look at nvidia-smi");
    } else if (status != cudaSuccess) {
      refuse(to_text("cudaGetDeviceCount: ", cudaGetErrorString(status)), "look at nvidia-smi");
    }
    if (status != cudaSuccess) facts.count = 0;
  }

  void ask_for_properties() {
    cudaDeviceProp properties{};
    const cudaError_t status = cudaGetDeviceProperties(&properties, 0);
    if (status != cudaSuccess)
      return refuse(to_text("cudaGetDeviceProperties: ", cudaGetErrorString(status)), "look at nvidia-smi");
    facts.name = properties.name;
    facts.capability = properties.major * 10 + properties.minor;
    facts.multiprocessors = properties.multiProcessorCount;
    facts.memory = properties.totalGlobalMem;
  }

  void ask_for_kernels() {
    const auto status = static_cast<cudaError_t>(find_kernels());
    if (status == cudaSuccess) return;
    const int major = facts.capability / 10, minor = facts.capability % 10;
    refuse(to_text(facts.name, " has compute capability ", major, '.', minor,
               "; this build's kernels are for CMAKE_CUDA_ARCHITECTURES=", compiled_architectures(), ": ",
               cudaGetErrorString(status)),
        to_text("configure with -DCMAKE_CUDA_ARCHITECTURES=", facts.capability));
  }

  // A device can exist and still refuse: it is used exclusively by one process, or needs a reset.
  void ask_for_context() {
    const cudaError_t status = cudaFree(nullptr);
    if (status != cudaSuccess) refuse(to_text(facts.name, ": ", cudaGetErrorString(status)), "look at nvidia-smi");
  }
};

// The engine's stream, for Staging.
struct StreamLine {
  using Mark = cudaEvent_t;
  static char* pinned(std::size_t bytes) { return static_cast<char*>(allocate_pinned(bytes)); }
  static void send(const char* from, char* to, std::size_t bytes) { copy_from_pinned(from, to, bytes); }
  static void mark(Mark& event) {
    if (!event) require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "copy", "cudaEventCreate");
    require(cudaEventRecord(event, stream()), "copy", "cudaEventRecord");
  }
  static void wait(const Mark& event) {
    if (cudaEventSynchronize(event) != cudaSuccess) synchronise();  // reports the kernel's error
  }
};

}  // namespace

void require(int status, const char* op, const char* call) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // reported here, so that the next launch does not report it again
  fail(op, call, ": ", cudaGetErrorString(static_cast<cudaError_t>(status)));
}

const DeviceFacts& device_facts() {
  static const DeviceFacts& facts = *new DeviceFacts(Inquiry().facts);
  return facts;
}

// These objects are never destroyed: at the end of a program the driver may be unloaded before the last tensor.
CUstream_st* stream() {
  static const cudaStream_t stream = [] {
    cudaStream_t created = nullptr;
    // Non-blocking: the default stream, which other code may use, and this one do not wait for each other.
    require(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking), "stream", "cudaStreamCreate");
    return created;
  }();
  return stream;
}

void* allocate(std::size_t bytes) {
  void* block = nullptr;
  const cudaError_t status = cudaMalloc(&block, bytes);
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  require(status, "allocate", "cudaMalloc");
  return block;
}

// Not an error: at the end of a program the driver may be unloaded, and its memory with it. The status is cleared,
// because the next launch would be blamed.
void deallocate(void* block) noexcept {
  if (cudaFree(block) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

void unset(void*, std::size_t) {}  // the memory keeps its numbers
void retire(void*) noexcept {}

MemoryRoom memory_room() {
  MemoryRoom room;
  require(cudaMemGetInfo(&room.free, &room.total), "memory", "cudaMemGetInfo");
  return room;
}

void* address_for_libraries(const void* address) { return const_cast<void*>(address); }

bool all_has_ended() {
  if (cudaStreamQuery(stream()) == cudaErrorNotReady) return false;
  synchronise();  // reports errors of kernels
  return true;
}

void* allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  require(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "copy", "cudaHostAlloc");
  return memory;
}

void copy_from_pinned(const void* from, void* to, std::size_t bytes) {
  require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream()), "copy", "cudaMemcpyAsync to the GPU");
  remember("a copy to the GPU");
}

void copy_to_cpu(const void* from, void* to, std::size_t bytes) {
  if (bytes == 0) return;
  if (capturing()) {
    fail("copy", bytes,
        " bytes asked from the GPU while work is being recorded; numbers exist only when it is replayed; "
        "read them afterwards, from what the work returned");
  }
  synchronise();  // reports an error of a kernel as such, not as one of the copy
  require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream()), "copy", "cudaMemcpyAsync from the GPU");
  remember("a copy from the GPU");
  synchronise();
}

void copy_from_cpu(const void* from, void* to, std::size_t bytes) {
  if (bytes == 0) return;
  if (capturing()) return copy_from_pinned(keep_for_graph(from, bytes), to, bytes);
  static auto& staging = *new Staging<StreamLine>;
  staging.send(static_cast<const char*>(from), static_cast<char*>(to), bytes);
}

}  // namespace whence::gpu

// The CUDA runtime: the device and its memory, copies, launches, and the stream's work as a CUDA graph.
#include "cuda/runtime/runtime.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "cuda/runtime/backend.h"
#include "tensor/error.h"

namespace whence::gpu {

struct Graph {
  cudaGraphExec_t launchable = nullptr;
  std::vector<void*> constants;  // pinned copies of the bytes that were copied from the CPU while recording

  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    if (launchable) static_cast<void>(cudaGraphExecDestroy(launchable));
    for (void* constant : constants) static_cast<void>(cudaFreeHost(constant));
  }
};

namespace {

constexpr std::size_t default_shared_bytes = std::size_t{48} << 10;  // more must be requested, kernel by kernel
std::atomic<std::uint64_t> launches_so_far = 0;

// The graph being recorded, or null.
std::unique_ptr<Graph>& under_way() {
  static std::unique_ptr<Graph>& graph = *new std::unique_ptr<Graph>;
  return graph;
}

// Throws Error "op: call: the runtime's message" unless `status` is success. For calls that request something;
// launched() and synchronise() report errors of kernels.
void require(cudaError_t status, const char* op, const char* call) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // reported here, so that the next launch does not report it again
  fail(op, call, ": ", cudaGetErrorString(status));
}

// Sets `refusal` if the driver shows no device.
void ask_for_device(DeviceFacts& facts) {
  const auto refuse = [&](const std::string& why, const char* advice) { facts.refusal = why, facts.advice = advice; };
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

// Queries the driver, in an order that shows what is missing first.
DeviceFacts ask_driver() {
  DeviceFacts facts;
  facts.toolkit_version = CUDART_VERSION;
  static_cast<void>(cudaDriverGetVersion(&facts.driver_version));
  static_cast<void>(cudaRuntimeGetVersion(&facts.runtime_version));
  ask_for_device(facts);
  if (!facts.refusal.empty()) return facts;
  facts.advice = "look at nvidia-smi";
  cudaDeviceProp properties{};
  if (const cudaError_t status = cudaGetDeviceProperties(&properties, 0); status != cudaSuccess) {
    facts.refusal = to_text("cudaGetDeviceProperties: ", cudaGetErrorString(status));
    return facts;
  }
  facts.name = properties.name;
  facts.capability = properties.major * 10 + properties.minor;
  facts.multiprocessors = properties.multiProcessorCount;
  facts.memory = properties.totalGlobalMem;
  if (const auto status = static_cast<cudaError_t>(find_kernels()); status != cudaSuccess) {
    facts.refusal = to_text(facts.name, " has compute capability ", properties.major, '.', properties.minor,
        "; this build's kernels are for CMAKE_CUDA_ARCHITECTURES=", compiled_architectures(), ": ",
        cudaGetErrorString(status));
    facts.advice = to_text("configure with -DCMAKE_CUDA_ARCHITECTURES=", facts.capability);
    return facts;
  }
  // A device can exist and still refuse: it is used exclusively by one process, or needs a reset.
  if (const cudaError_t status = cudaFree(nullptr); status != cudaSuccess)
    facts.refusal = to_text(facts.name, ": ", cudaGetErrorString(status));
  return facts;
}

}  // namespace

const DeviceFacts& device_facts() {
  static const DeviceFacts& facts = *[] {
    auto* const found = new DeviceFacts(ask_driver());
    static_cast<void>(cudaGetLastError());  // clears leftover errors: nothing was launched yet
    return found;
  }();
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

BlockSource::Room memory_room() {
  BlockSource::Room room;
  require(cudaMemGetInfo(&room.free, &room.capacity), "memory", "cudaMemGetInfo");
  return room;
}

void copy_to_cpu(const void* from, void* to, std::size_t bytes) {
  synchronise();  // reports an error of a kernel as such, not as one of the copy
  require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream()), "copy", "cudaMemcpyAsync from the GPU");
  synchronise();
}

void copy_from_cpu(const void* from, void* to, std::size_t bytes) {
  if (capturing()) {
    void* constant = nullptr;
    require(cudaHostAlloc(&constant, bytes, cudaHostAllocDefault), "copy", "cudaHostAlloc");
    under_way()->constants.push_back(constant);
    from = std::memcpy(constant, from, bytes);
  }
  require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream()), "copy", "cudaMemcpyAsync to the GPU");
  if (!capturing()) synchronise();  // some drivers read `from` until then
}

// ---- Launches.

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
  static const bool waits = [] {
    const char* const value = std::getenv("WHENCE_CUDA_SYNC");
    return value && std::string_view(value) == "1";
  }();
  cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess && waits && !capturing()) status = cudaStreamSynchronize(stream());
  if (status != cudaSuccess) {
    fail("launch", to_string(facts), ": ", cudaGetErrorString(status),
        waits ? "" : "; this kernel, or one before it; run with WHENCE_CUDA_SYNC=1 to know");
  }
  ++launches_so_far;
}

std::uint64_t launches() { return launches_so_far; }

void synchronise() {
  const cudaError_t status = cudaStreamSynchronize(stream());
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  fail("synchronise", "a kernel failed: ", cudaGetErrorString(status),
      "; run with WHENCE_CUDA_SYNC=1, which names it; this process can no longer use the GPU");
}

// ---- Graphs.

bool capturing() { return under_way() != nullptr; }

// Relaxed: memory may be allocated on the device meanwhile, which the stricter modes forbid.
void begin_capture() {
  synchronise();  // reports errors of earlier kernels as theirs
  auto graph = std::make_unique<Graph>();
  require(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed), "record", "cudaStreamBeginCapture");
  under_way() = std::move(graph);
}

Graph* end_capture() {
  std::unique_ptr<Graph> graph = std::move(under_way());
  cudaGraph_t recorded = nullptr;
  require(cudaStreamEndCapture(stream(), &recorded), "record", "cudaStreamEndCapture");
  const cudaError_t status = cudaGraphInstantiateWithFlags(&graph->launchable, recorded, 0);
  static_cast<void>(cudaGraphDestroy(recorded));
  require(status, "record", "cudaGraphInstantiate");
  return graph.release();
}

void abandon_capture() noexcept {
  cudaGraph_t recorded = nullptr;
  static_cast<void>(cudaStreamEndCapture(stream(), &recorded));
  if (recorded) static_cast<void>(cudaGraphDestroy(recorded));
  static_cast<void>(cudaGetLastError());
  under_way().reset();
}

void launch_graph(const Graph& graph) {
  require(cudaGraphLaunch(graph.launchable, stream()), "replay", "cudaGraphLaunch");
  launched({"a replayed graph", 0, 0, 0});
}

// A running graph must not be destroyed; the next wait reports its error. While another one is recorded nothing runs.
void destroy_graph(Graph* graph) noexcept {
  if (!capturing()) static_cast<void>(cudaStreamSynchronize(stream()));
  delete graph;
}

// nvcc compiles the loop of an index-style op into the op's file.
void run_indices(const char* op, index_t count, const IndexBody&) {
  fail(op, count, " indices on a GPU from a file compiled for the host alone; compile it with nvcc (LANGUAGE CUDA)");
}

}  // namespace whence::gpu

whence::gpu::emulator::Settings* whence::emulator_settings() { return nullptr; }

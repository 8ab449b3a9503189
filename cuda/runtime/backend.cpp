// The backend for CUDA: the kernels, the memory of its Allocator and the recordings of its DeviceRuntime, the same over
// the driver and over the emulator; or an Error that says why there is no usable GPU.
#include "cuda/runtime/backend.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "cuda/kernels/kernels.h"
#include "cuda/library/blas.h"
#include "cuda/runtime/runtime.h"
#include "tensor/device/allocator.h"
#include "tensor/device/device_runtime.h"
#include "tensor/device/product_layout.h"

namespace whence {
namespace {

// Traffic since the program began; and that of the graph being recorded, which counts again at each replay.
std::mutex traffic_mutex;
DeviceTraffic traffic_since_start, traffic_of_graph;

template <class Add> void count(const Add& add) {
  const std::scoped_lock lock(traffic_mutex);
  add(gpu::capturing() ? traffic_of_graph : traffic_since_start);
}

class GpuBlocks final : public BlockSource {
 public:
  void* take(std::size_t bytes) override { return gpu::allocate(bytes); }
  void give_back(void* block, std::size_t) noexcept override { gpu::deallocate(block); }
  Room room() const override { return gpu::memory_room(); }
  const char* name() const override { return "GPU memory"; }
  bool host_may_read() const override { return false; }
  void hand_out(void* block, std::size_t bytes) override { gpu::unset(block, bytes); }
  void retire(void* block) noexcept override { gpu::retire(block); }
  void copy_to_cpu(const void* from, void* to, std::size_t bytes) override {
    if (bytes == 0) return;
    if (gpu::capturing())
      fail("copy", "numbers are read back while work is being recorded; they exist after a replay; read them then");
    gpu::copy_to_cpu(from, to, bytes);
  }
  void copy_from_cpu(const void* from, void* to, std::size_t bytes) override {
    if (bytes == 0) return;
    gpu::copy_from_cpu(from, to, bytes);
    count([&](DeviceTraffic& traffic) { traffic.bytes_to_device += bytes; });
  }
};

// Never destroyed: tensors in static storage may be freed after any destructor here.
Allocator& gpu_memory() {
  static Allocator& allocator = *new Allocator(*new GpuBlocks);
  return allocator;
}

// Its destructor releases the graph's memory.
class RecordedGraph final : public RecordedWork {
 public:
  RecordedGraph(gpu::Graph* graph, const DeviceTraffic& traffic, Allocator::Pool pool)
      : graph_(graph), traffic_(traffic), pool_(pool) {}
  RecordedGraph(const RecordedGraph&) = delete;
  RecordedGraph& operator=(const RecordedGraph&) = delete;
  ~RecordedGraph() override {
    gpu::destroy_graph(graph_);
    gpu_memory().release_pool(pool_);
  }
  void replay() override {
    if (gpu::capturing()) fail("replay", "asked for while other work is being recorded; replay afterwards");
    gpu::launch_graph(*graph_);
    count([this](DeviceTraffic& traffic) {
      traffic.bytes_to_device += traffic_.bytes_to_device;
      traffic.products += traffic_.products, traffic.unaligned += traffic_.unaligned;
    });
  }

 private:
  gpu::Graph* graph_;
  DeviceTraffic traffic_;
  Allocator::Pool pool_;
};

class CudaRuntime final : public DeviceRuntime {
 public:
  void synchronise() override {
    if (gpu::capturing())
      fail(
          "synchronise", "asked for while work is being recorded; nothing runs before it is replayed; wait afterwards");
    gpu::synchronise();
  }
  DeviceTraffic traffic() const override {
    const std::scoped_lock lock(traffic_mutex);
    DeviceTraffic all = traffic_since_start;
    all.launches = gpu::launches();
    return all;
  }
  std::unique_ptr<RecordedWork> record(const std::function<void()>& work) override {
    if (gpu::capturing()) fail("record", "recording is under way; one at a time required; end it first");
    // The graph has its own memory: blocks cached by unrecorded steps would be unused meanwhile.
    gpu_memory().release_cached();
    gpu::begin_capture();
    traffic_of_graph = {};
    const Allocator::Pool pool = gpu_memory().open_pool();
    try {
      work();
    } catch (...) {
      gpu::abandon_capture();
      gpu_memory().release_pool(pool);
      throw;
    }
    gpu_memory().close_pool();
    try {
      return std::make_unique<RecordedGraph>(gpu::end_capture(), traffic_of_graph, pool);
    } catch (...) {
      gpu_memory().release_pool(pool);
      throw;
    }
  }
};

class GpuLauncher final : public IndexLauncher {
 public:
  CUstream_st* stream() override { return gpu::stream(); }
  void launched(const char* op, index_t blocks, int threads) override { gpu::launched({op, blocks, threads, 0}); }
  bool recording() const override { return gpu::capturing(); }
  void run(const char* op, index_t count, const IndexBody& body) override { gpu::run_indices(op, count, body); }
};

}  // namespace

std::string gpu::to_string(const LaunchFacts& facts) {
  if (facts.threads == 0) return facts.kernel;  // a product, a copy or a graph has no blocks of ours
  std::string text = to_text(
      facts.kernel, ", ", facts.blocks, facts.blocks == 1 ? " block of " : " blocks of ", facts.threads, " threads");
  if (facts.shared_bytes > 0) text += to_text(", ", facts.shared_bytes, " bytes of shared memory");
  return text;
}

void count_product(const BlasProduct& p) {
  const ProductCount one{1, static_cast<std::uint64_t>(p.batch * p.m * p.n * p.k)};
  const bool aligned = std::ranges::all_of(
      std::array{p.m, p.n, p.k}, [&](index_t extent) { return extent % product_pack(p.dtype) == 0; });
  count([&](DeviceTraffic& traffic) {
    traffic.products += one;
    if (!aligned) traffic.unaligned += one;
  });
}

// No object here is ever destroyed: tensors in static storage are freed after any destructor.
static Backend find_gpu(Device) {
  const DeviceFacts& facts = gpu::device_facts();
  if (!facts.refusal.empty())
    fail("device", "cuda:0 given; no GPU can be used: ", facts.refusal, "; ", facts.advice, ", or use cpu");
  static CudaRuntime& runtime = *new CudaRuntime;
  static CudaKernels& kernels = *new CudaKernels;
  static GpuLauncher& launcher = *new GpuLauncher;
  return {&kernels, &gpu_memory(), &launcher, &runtime, &dual_kernels()};
}
static const RegisteredBackend registered(Device::Kind::cuda, find_gpu);

const DeviceFacts& cuda_facts() { return gpu::device_facts(); }

}  // namespace whence

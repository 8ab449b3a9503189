#include "cuda/runtime/memory.h"

#include <atomic>

#include "cuda/runtime/runtime.h"

namespace whence {
namespace {

std::atomic<std::uint64_t> bytes_to_device = 0;
std::uint64_t recorded_bytes = 0;  // that each replay of the graph that is being recorded copies

class GpuBlocks final : public BlockSource {
 public:
  void* take(std::size_t bytes) override { return gpu::allocate(bytes); }
  void give_back(void* block, std::size_t) noexcept override { gpu::deallocate(block); }
  Room room() const override {
    const gpu::MemoryRoom room = gpu::memory_room();
    return {room.free, room.total};
  }
  const char* name() const override { return "GPU memory"; }
  bool host_may_read() const override { return false; }
  void hand_out(void* block, std::size_t bytes) override { gpu::unset(block, bytes); }
  void retire(void* block) noexcept override { gpu::retire(block); }
  void copy_to_cpu(const void* from, void* to, std::size_t bytes) override { gpu::copy_to_cpu(from, to, bytes); }
  void copy_from_cpu(const void* from, void* to, std::size_t bytes) override {
    gpu::copy_from_cpu(from, to, bytes);
    if (gpu::capturing())
      recorded_bytes += bytes;
    else
      bytes_to_device += bytes;
  }
};

// Destroyed, it hands its memory to everyone.
class RecordedGraph final : public RecordedWork {
 public:
  RecordedGraph(gpu::Graph* graph, std::uint64_t bytes, Allocator::Pool pool)
      : graph_(graph), bytes_(bytes), pool_(pool) {}
  RecordedGraph(const RecordedGraph&) = delete;
  RecordedGraph& operator=(const RecordedGraph&) = delete;
  ~RecordedGraph() override {
    gpu::destroy_graph(graph_);
    gpu_memory().release_pool(pool_);
  }
  void replay() override {
    if (gpu::capturing()) fail("replay", "asked for while other work is being recorded; replay afterwards");
    gpu::launch_graph(*graph_);
    bytes_to_device += bytes_;
  }

 private:
  gpu::Graph* graph_;
  std::uint64_t bytes_;
  Allocator::Pool pool_;
};

}  // namespace

// Never destroyed: tensors in static storage may be freed after any destructor here.
Allocator& gpu_memory() {
  static Allocator& allocator = *new Allocator(*new GpuBlocks);
  return allocator;
}

void CudaRuntime::synchronise() { gpu::synchronise(); }
bool CudaRuntime::recording() const { return gpu::capturing(); }
DeviceTraffic CudaRuntime::traffic() const { return {gpu::launches(), bytes_to_device}; }

std::unique_ptr<RecordedWork> CudaRuntime::record(const std::function<void()>& work) {
  if (!gpu::capturing())
    // The graph's memory is its own: what an unrecorded step left would lie idle beside it.
    gpu_memory().release_cached();
  gpu::begin_capture();
  recorded_bytes = 0;
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
    return std::make_unique<RecordedGraph>(gpu::end_capture(), recorded_bytes, pool);
  } catch (...) {
    gpu_memory().release_pool(pool);
    throw;
  }
}

}  // namespace whence

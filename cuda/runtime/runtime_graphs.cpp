// Records the stream's work as a CUDA graph.
#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <vector>

#include "cuda/runtime/runtime.h"
#include "cuda/runtime/runtime_state.h"
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

// The graph being recorded, or null.
std::unique_ptr<Graph>& under_way() {
  static std::unique_ptr<Graph>& graph = *new std::unique_ptr<Graph>;
  return graph;
}

}  // namespace

bool capturing() { return under_way() != nullptr; }

// Relaxed: memory may be allocated on the device meanwhile, which the stricter modes forbid.
void begin_capture() {
  if (capturing()) fail("record", "recording is under way; one at a time required; end it first");
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

const void* keep_for_graph(const void* from, std::size_t bytes) {
  void* const constant = allocate_pinned(bytes);
  under_way()->constants.push_back(constant);
  std::memcpy(constant, from, bytes);
  return constant;
}

}  // namespace whence::gpu

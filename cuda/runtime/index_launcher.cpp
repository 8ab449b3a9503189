// Index-style ops on a GPU: nvcc compiles the loop into the op's file; their stream and the record of launches are
// here.
#include "cuda/runtime/backend.h"
#include "cuda/runtime/runtime.h"

namespace whence {
namespace {

class GpuLauncher final : public IndexLauncher {
 public:
  CUstream_st* stream() override { return gpu::stream(); }
  void launched(const char* op, index_t blocks, int threads) override { gpu::launched({op, blocks, threads, 0}); }
  bool recording() const override { return gpu::capturing(); }
  void run(const char* op, index_t count, const IndexBody&) override {
    fail(op, count, " indices on a GPU from a file compiled for the host alone; compile it with nvcc (LANGUAGE CUDA)");
  }
};

}  // namespace

IndexLauncher& index_launcher() {
  static GpuLauncher& launcher = *new GpuLauncher;
  return launcher;
}

gpu::emulator::Settings* emulator_settings() { return nullptr; }

}  // namespace whence

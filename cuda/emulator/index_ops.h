// Index-style ops (tensor/launch.h) on the emulated device. Their bodies hold plain pointers, so single accesses are
// not checked. But writes next to a tensor are found, and each op runs in two orders of its indices, which must agree.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cuda/emulator/arena.h"
#include "tensor/backend.h"
#include "tensor/kernels.h"

namespace whence::gpu::emulator {

// A body's bytes, as a GPU receives them, with every device address changed to the one that kernels use.
class BodyCopy {
 public:
  explicit BodyCopy(const IndexBody& body);
  void call(index_t i) const { call_(bytes_.get(), i); }
  const std::vector<Arena::Use>& uses() const { return uses_; }  // the blocks that it points at

 private:
  std::shared_ptr<std::byte> bytes_;
  std::vector<Arena::Use> uses_;
  void (*call_)(const void* body, index_t i);
};

class Launcher final : public IndexLauncher {
 public:
  bool recording() const override;
  CUstream_st* stream() override;
  void launched(const char* op, index_t blocks, int threads) override;
  void run(const char* op, index_t count, const IndexBody& body) override;
};

}  // namespace whence::gpu::emulator

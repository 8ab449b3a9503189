// Index-style ops (tensor/launch.h) on the emulated device. Their bodies hold plain pointers, so they run unchecked,
// but at device addresses of their own and in the chosen order of indices.
#pragma once

#include <cstddef>
#include <memory>

#include "tensor/backend.h"
#include "tensor/kernels.h"

namespace whence::gpu::emulator {

// A body's bytes, as a GPU gets them, with every device address changed to where kernels see that memory.
class BodyCopy {
 public:
  explicit BodyCopy(const IndexBody& body);
  void call(index_t i) const { call_(bytes_.get(), i); }

 private:
  std::shared_ptr<std::byte> bytes_;
  void (*call_)(const void* body, index_t i);
};

class Launcher final : public IndexLauncher {
 public:
  CUstream_st* stream() override;
  void launched(const char* op, index_t blocks, int threads) override;
  void run(const char* op, index_t count, const IndexBody& body) override;
};

}  // namespace whence::gpu::emulator

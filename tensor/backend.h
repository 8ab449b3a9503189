// A device's backend: what it brings to take part. Each kind of device registers its own. The core brings the CPU's plain
// one, which stands back where another is registered for the CPU.
#pragma once

#include <cstddef>

#include "tensor/kernels.h"

struct CUstream_st;

namespace whence {

class DeviceRuntime;

// Bytes on a device.
class Memory {
 public:
  virtual ~Memory() = default;
  // At least `bytes` bytes, aligned to 64 or better. Throws OutOfMemory.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* block, std::size_t bytes) noexcept = 0;           // REQUIRES: from allocate(bytes)
  virtual void copy_to_cpu(const void* from, void* to, std::size_t bytes) = 0;    // waits for what was launched before
  virtual void copy_from_cpu(const void* from, void* to, std::size_t bytes) = 0;  // `from` may change afterwards
};

// The body of an index-style op (tensor/launch.h) without its type.
struct IndexBody {
  const void* body;  // `bytes` of it, trivially copyable
  std::size_t bytes;
  void (*call)(const void* body, index_t i);
};

// How index-style ops start on a device.
class IndexLauncher {
 public:
  virtual ~IndexLauncher() = default;
  // For ops that nvcc compiled: the stream to launch on, and what to call after it.
  virtual CUstream_st* stream() = 0;
  virtual void launched(const char* op, index_t blocks, int threads) = 0;
  // For ops compiled for the host alone: body(i) for every i in [0, count). Error where the device cannot run them.
  virtual void run(const char* op, index_t count, const IndexBody& body) = 0;
  // True while work is recorded instead of done, to be done many times with the numbers of now.
  virtual bool recording() const { return false; }
};

struct Backend {
  Kernels* kernels = nullptr;
  Memory* memory = nullptr;
  IndexLauncher* launcher = nullptr;  // null: index-style ops are loops of the host
  DeviceRuntime* runtime = nullptr;   // tensor/device/device_runtime.h; null: nothing to wait for
};

// static const RegisteredBackend registered(Device::Kind::cpu, [](Device) -> Backend { ... });
// The function is called whenever the device is asked for. It may throw an Error that says why there is no such device.
struct RegisteredBackend {
  RegisteredBackend(Device::Kind kind, Backend (*find)(Device));
};
Backend backend_of(Device device);  // Error when this build has no such device

}  // namespace whence

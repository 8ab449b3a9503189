// Backend: what a device must provide. Each kind of device registers its own. The core has the CPU's kernels on one
// thread, and memory from the system; any other backend for the CPU replaces them.
#pragma once

#include <cstddef>

#include "tensor/kernels.h"

struct CUstream_st;

namespace whence {

class DeviceRuntime;

// Memory allocates on a device and copies between the device and the CPU.
class Memory {
 public:
  virtual ~Memory() = default;
  // Returns at least `bytes` bytes, aligned to 64 or better. Throws OutOfMemory.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* block, std::size_t bytes) noexcept = 0;           // REQUIRES: from allocate(bytes)
  virtual void copy_to_cpu(const void* from, void* to, std::size_t bytes) = 0;    // waits for what was launched before
  virtual void copy_from_cpu(const void* from, void* to, std::size_t bytes) = 0;  // `from` may change afterwards
};

// IndexBody is the body of an index-style op (tensor/launch.h), type-erased.
struct IndexBody {
  const void* body;  // `bytes` bytes, trivially copyable
  std::size_t bytes;
  void (*call)(const void* body, index_t i);
};

// IndexLauncher starts index-style ops on a device.
class IndexLauncher {
 public:
  virtual ~IndexLauncher() = default;
  // For ops compiled by nvcc: the stream to launch on, and the function to call after each launch.
  virtual CUstream_st* stream() = 0;
  virtual void launched(const char* op, index_t blocks, int threads) = 0;
  // For ops compiled for the host alone: calls body(i) for every i in [0, count). Throws Error if the device cannot.
  virtual void run(const char* op, index_t count, const IndexBody& body) = 0;
  // True while work is recorded to be replayed many times. Numbers of the host are then those of the recording.
  virtual bool recording() const { return false; }
};

struct Backend {
  Kernels* kernels = nullptr;
  Memory* memory = nullptr;
  IndexLauncher* launcher = nullptr;  // null: index-style ops are host loops
  DeviceRuntime* runtime = nullptr;   // tensor/device/device_runtime.h; null: nothing to wait for
  Kernels* of_duals = nullptr;        // null: `kernels` compute with duals as well
};

// static const RegisteredBackend registered(Device::Kind::cpu, [](Device) -> Backend { ... });
// The function is called on every request for the device. It may throw an Error that says why the device is missing.
struct RegisteredBackend {
  RegisteredBackend(Device::Kind kind, Backend (*find)(Device));
};
Backend backend_of(Device device);  // throws Error if this build has no such device

}  // namespace whence

// What a device needs to take part: kernels, memory, and a way to start index-style ops. Here cuda/ and tensor/ meet.
#pragma once

#include "tensor/kernels.h"

struct CUstream_st;

namespace whence {

class Allocator;
class DeviceRuntime;
class JoinedKernels;

// The body of an index-style op (tensor/device/launch.h) without its type.
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
};

struct Backend {
  JoinedKernels* kernels = nullptr;
  Allocator* memory = nullptr;       // tensor/device/allocator.h
  DeviceRuntime* runtime = nullptr;  // tensor/device/device_runtime.h
  IndexLauncher* launcher = nullptr;
};
Backend planned_backend(Device planned);  // counts bytes and computes nothing
Backend cuda_backend();           // defined in cuda/; empty in a build without CUDA; Error where no GPU can be used
const DeviceFacts& cuda_facts();  // defined in cuda/; never an Error

// Throw Error when this build has no such device; runtime_of for the CPU too. launcher_of REQUIRES: not the CPU.
Allocator& memory_of(Device device);
DeviceRuntime& runtime_of(Device device);
IndexLauncher& launcher_of(Device device);

}  // namespace whence

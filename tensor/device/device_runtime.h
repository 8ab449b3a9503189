// A GPU as its driver reports it, and its asynchronous work: waiting for it, and recording it to run again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

// The GPU that cuda:0 means, or why there is none.
struct DeviceFacts {
  std::string refusal;    // why it cannot be used; empty if it can. The facts below are set either way.
  std::string advice;     // what to do about it
  bool emulated = false;  // cuda/emulator replaces a GPU
  std::string name;       // "NVIDIA H100 80GB HBM3"
  int count = 0;          // devices that the driver reports
  int capability = 0;     // 90 is 9.0
  int multiprocessors = 0;
  std::size_t memory = 0;   // bytes
  int driver_version = 0;   // the newest CUDA that the driver supports, 13000 is 13.0; 0: no driver
  int runtime_version = 0;  // of the CUDA runtime in use, likewise; 0: none in this build
  int toolkit_version = 0;  // the CUDA toolkit of the build
};

// Returns "13.0" for 13000.
inline std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

const DeviceFacts& cuda_facts();  // defined in cuda/; never throws Error

// RecordedWork relaunches everything that some work launched, in one call: the same kernels on the same memory, which
// stays reserved for it.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  virtual void replay() = 0;  // returns before the work has ended
};

// ProductCount counts matrix products and the multiplications in them.
struct ProductCount {
  std::uint64_t products = 0, multiplications = 0;
  ProductCount& operator+=(const ProductCount& more) {
    products += more.products, multiplications += more.multiplications;
    return *this;
  }
  friend ProductCount operator-(const ProductCount& a, const ProductCount& b) {
    return {a.products - b.products, a.multiplications - b.multiplications};
  }
};

// DeviceTraffic counts the work launched since the program began. A graph's products count at each replay.
struct DeviceTraffic {
  std::uint64_t launches = 0;         // of kernels, of products, and of graphs: one each
  std::uint64_t bytes_to_device = 0;  // copied there from the CPU
  ProductCount products = {};
  ProductCount unaligned = {};  // of extents that are no multiple of a pack (tensor/device/product_layout.h)
};

class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  // Waits for everything that was launched. Throws the error of any kernel that failed, with the kernels that may have
  // caused it and the call sites of their ops.
  virtual void synchronise() = 0;

  // Runs `work` in recording mode: kernels, products and copies to the device are recorded, not executed. Tensors made
  // inside have their numbers after the first replay. Throws Error if the device cannot record. Errors of `work`
  // propagate. The engine stays usable after both. Inside `work`, reading numbers back (item, to_vector), waiting and
  // recording throw Error.
  virtual std::unique_ptr<RecordedWork> record(const std::function<void()>& work) = 0;
  virtual DeviceTraffic traffic() const { return {}; }
};

DeviceRuntime& runtime_of(Device device);  // throws Error for the CPU, and if this build has no such device

// Waits for the device. The CPU returns at once.
void synchronise(Device device);

// A step that runs many times with the same shapes. On a GPU it is recorded once and then launched as one graph: the
// time of a small step is mostly launches, and a graph is one launch.
//   RecordedStep step(device, [&] { ...; return std::vector<Tensor>{loss}; });
//   for (...) {
//     raw::copy_into(batch, input);                 // write new numbers into existing tensors
//     const double loss = step.run()[0].item();
//   }
//
// run() n times does the work n times. On a GPU the first run is an ordinary one, which loads libraries and allocates
// buffers. The second is recorded and launched; later runs only launch. On the CPU the work is called every time: same
// results, no graph.
//
// REQUIRES, on a GPU: the host's side of the work runs only twice. Numbers that the host decides (a learning rate, the
// number of the step, copies from the CPU) stay those of the second run; dropout is refused. Tensors that the work
// reads from outside must stay alive; they are read anew at every run. Nothing inside may read numbers back or depend
// on them.
class RecordedStep {
 public:
  using Work = std::function<std::vector<Tensor>()>;
  RecordedStep(Device device, Work work);

  // Returns the work's results. From the second run on they are always the same memory, with new numbers.
  const std::vector<Tensor>& run();
  // Records if the next run would. If this throws, nothing was done.
  void record_if_due();
  bool recorded() const { return graph_ != nullptr; }

 private:
  Device device_;
  Work work_;
  bool warm_ = false;
  std::unique_ptr<RecordedWork> graph_;  // declared before results_, so that it outlives them
  std::vector<Tensor> results_;
};

}  // namespace whence

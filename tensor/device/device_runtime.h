// Asynchronous work of a device: waiting for it, and recording it to run again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "tensor/device.h"
#include "tensor/device/facts.h"

namespace whence {

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

}  // namespace whence

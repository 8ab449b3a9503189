// Work that a device does on its own: waiting for it, and recording it to run again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "tensor/device.h"
#include "tensor/device/facts.h"

namespace whence {

// Everything that some work launched, to be launched again in one go: the same kernels on the same
// memory, which stays reserved for it.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  virtual void replay() = 0;  // returns before it has ended
};

// Matrix products, and the multiplications in them.
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

// Work that the host has asked of a device since the program began. A graph's products count whenever it is replayed.
struct DeviceTraffic {
  std::uint64_t launches = 0;         // of kernels, of products, and of graphs: one each
  std::uint64_t bytes_to_device = 0;  // copied there from the CPU
  ProductCount products = {};
  ProductCount unaligned =
      {};  // those with an extent that is no whole number of packs (tensor/device/product_layout.h)
};

class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  // Waits for everything that was launched. Throws the error of a kernel that failed since, with the kernels that may
  // have failed and the call sites of their ops.
  virtual void synchronise() = 0;

  // Runs `work` without doing it: kernels, products and copies to the device are recorded. Tensors made inside
  // have their numbers after the first replay. Error when the device cannot record. Errors of `work` go
  // through. The engine stays usable after both. Inside `work` it is an Error to read numbers back (item,
  // to_vector), to wait, or to record.
  virtual std::unique_ptr<RecordedWork> record(const std::function<void()>& work) = 0;
  virtual DeviceTraffic traffic() const { return {}; }
};

DeviceRuntime& runtime_of(Device device);  // Error for the CPU, and when this build has no such device

// Waits for the device. The CPU returns at once.
void synchronise(Device device);

}  // namespace whence

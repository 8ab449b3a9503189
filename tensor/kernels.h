// What a device computes: an interface of the kernels in tensor/kernel_list.h.
#pragma once

#include <span>

#include "tensor/pointwise.h"
#include "tensor/tensor.h"

namespace whence {

struct AdamEntry;
struct AdamStep;
struct Convolution;
struct IndexCheck;
struct Band;
struct Steps;
struct Stream;

enum class Reduction : unsigned char { sum, maximum };

class Kernels {
 public:
  virtual ~Kernels() = default;

#define WHENCE_KERNEL = 0
#include "tensor/kernel_list.h"

  // A contiguous i64 index with only allowed numbers. On the CPU that is `index` itself, or an Error at once. A device
  // does not wait: 0 stands where a number is not allowed, and report_faults throws the Error later.
  virtual Tensor checked_index(const IndexCheck& check, const Tensor& index) = 0;
  // Throws the Error about an index that the device found not allowed, any one of them if there are several. Called
  // whenever numbers are copied from the device to the CPU.
  virtual void report_faults() {}
};

Kernels& kernels(Device device);  // Error when this build has no such device

}  // namespace whence

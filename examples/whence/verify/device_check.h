// A scheme or an op on cuda:0 against the CPU: the output and the gradients of operands and parameters, number by number.
#pragma once

#include <string>

#include "autograd/check/samples.h"
#include "examples/whence/verify/conformance.h"
#include "nn/attention/executors.h"

namespace whence {

struct DeviceDisagreement {
  double largest = 0;      // of a tensor's numbers, in units of its largest on the CPU; infinite where one is NaN
  std::string worst = {};  // which tensor: "output", "gradient.q"
};

// Same parameters and operands by one executor in one dtype; two sequences of 6 tokens, laid out as `sequence` says.
[[nodiscard]] DeviceDisagreement device_disagreement(
    const std::string& text, const Sequence& sequence, const Executor& executor, DType dtype, std::uint64_t seed);

struct OpDisagreement {
  double value = 0, gradients = 0;  // the largest of all samples, in units as above
  std::string worst = {};           // the sample that has it, and of what
};

// Samples in this dtype.
[[nodiscard]] OpDisagreement device_disagreement(const CheckedOp& op, DType dtype);

// What a figure may be in this dtype.
[[nodiscard]] double device_tolerance(DType dtype);

// The columns of the conformance matrix on a device: by the reference executor in f32, f16 and bf16, by strips, token by token, and by tiles.
const std::vector<ConformanceCheck>& device_checks();

}  // namespace whence

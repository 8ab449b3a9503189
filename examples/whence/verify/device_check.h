// Compares a scheme or an op on cuda:0 with the CPU: output and gradients of operands and parameters, number by number.
#pragma once

#include <string>

#include "autograd/samples/samples.h"
#include "examples/whence/verify/conformance.h"
#include "nn/attention/plan.h"

namespace whence {

struct DeviceDisagreement {
  double largest = 0;      // difference, in units of the tensor's largest number on the CPU; infinite for NaN
  std::string worst = {};  // the tensor's name: "output", "gradient.q"; of an op after its sample's
};

// Runs the same parameters and operands by one executor in one dtype: two sequences of 6 tokens, masked by `sequence`.
[[nodiscard]] DeviceDisagreement device_disagreement(
    const std::string& text, const Sequence& sequence, const AttendPlan& plan, DType dtype, std::uint64_t seed);

[[nodiscard]] DeviceDisagreement device_disagreement(const CheckedOp& op, DType dtype);  // over all samples

[[nodiscard]] double device_tolerance(DType dtype);

// The columns of the conformance matrix on a device: by the reference executor in f32, f16 and bf16, by strips, token by token, and by tiles.
const std::vector<ConformanceCheck>& device_checks();

}  // namespace whence

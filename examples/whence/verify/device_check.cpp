#include "examples/whence/verify/device_check.h"

#include <algorithm>

#include "examples/whence/verify/bare_attention.h"
#include "examples/whence/verify/compare.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

constexpr index_t dim = 8, heads = 2, length = 6, batch = 2;

std::vector<Named> results_on(Device device, const std::string& text, const Sequence& sequence,
    const Executor& executor, DType dtype, std::uint64_t seed) {
  const BareAttention scheme(text, {dim, heads, length});
  draw_parameters(scheme.root(), seed);
  scheme.root().to(dtype);
  scheme.root().to(device);
  AttendInputs inputs = random_inputs(scheme, batch, length, seed, dtype);
  inputs.sequence = sequence;
  for (const auto& [name, operand] : named_operands(inputs))
    if (operand->defined()) *operand = raw::to_device(*operand, device);
  return output_and_gradients(scheme, inputs, executor, random_cotangent(inputs, seed));
}

std::function<ConformanceCell(const ConformanceSubject&)> check_of(const Executor& executor, DType dtype) {
  return [&executor, dtype](const ConformanceSubject& subject) {
    if (dtype != DType::f32 && !subject.claims.exact_gradient)
      return ConformanceCell::not_applicable("an argmax jumps with the rounding");
    const DeviceDisagreement found =
        device_disagreement(subject.text, Sequence::run(length), executor, dtype, subject.seed);
    return ConformanceCell::within(found.largest, device_tolerance(dtype), found.worst);
  };
}

}  // namespace

DeviceDisagreement device_disagreement(
    const std::string& text, const Sequence& sequence, const Executor& executor, DType dtype, std::uint64_t seed) {
  const std::vector<Named> expected = results_on(Device::cpu(), text, sequence, executor, dtype, seed),
                           got = results_on(Device::cuda(0), text, sequence, executor, dtype, seed);
  // Against the largest of the tensor, as sums lose what their terms lost; but at least a tenth of the largest of all,
  // for gradients that are 0 because their terms cancel, as those of a bias that the softmax does not see.
  double largest = 1e-3;
  for (const Named& each : expected) largest = std::max(largest, largest_size(each.tensor));
  DeviceDisagreement found;
  for (std::size_t k = 0; k < got.size(); ++k) {
    const Tensor& wanted = expected[k].tensor;
    const double apart = largest_difference(got[k].tensor, wanted) / std::max(0.1 * largest, largest_size(wanted));
    if (apart > found.largest) found = {apart, got[k].name};
  }
  return found;
}

double device_tolerance(DType dtype) { return dtype == DType::f32 ? 5e-5 : 16 * epsilon_of(dtype); }

const std::vector<ConformanceCheck>& device_checks() {
  static const std::unique_ptr<Executor> strips = strips_executor_of(4);
  static const std::vector<ConformanceCheck> checks{
      {"f32", "output and gradients on the device as on the CPU", check_of(reference_executor(), DType::f32)},
      {"f16", "the same in f16", check_of(reference_executor(), DType::f16)},
      {"bf16", "the same in bf16", check_of(reference_executor(), DType::bf16)},
      {"strips", "the same in f32 by strips of rows", check_of(*strips, DType::f32)}};
  return checks;
}

}  // namespace whence

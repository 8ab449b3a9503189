#include "examples/whence/verify/device_check.h"

#include <algorithm>

#include "autograd/backward.h"
#include "examples/whence/verify/bare_attention.h"
#include "examples/whence/verify/compare.h"
#include "nn/attention/executors.h"
#include "tensor/error.h"
#include "tensor/random.h"
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

// An op's value, and its gradients by all floating inputs along a cotangent that no two numbers of share.
std::vector<Named> results_on(Device device, const CheckedSample& sample, DType dtype) {
  std::vector<Tensor> inputs, leaves;
  for (const Tensor& given : sample.inputs) {
    const bool floating = given.defined() && is_floating(given.dtype());
    inputs.push_back(!given.defined() ? given : raw::to_device(floating ? raw::cast(given, dtype) : given, device));
    if (floating) leaves.push_back(requires_grad(raw::copy(inputs.back()))), inputs.back() = leaves.back();
  }
  const Tensor y = sample.run(inputs);
  std::vector<Named> results{{"value", y.detach()}};
  if (!tracked(y)) return results;
  const Tensor along = Tensor::normal(y.shape(), 0, 1, Stream(1, "cotangent"), y.dtype());
  const auto gradients = grad(y, raw::to_device(along, device), leaves, {.allow_unused = true});
  for (std::size_t k = 0; k < gradients.size(); ++k)
    if (gradients[k].defined()) results.push_back({to_text("gradient ", k), gradients[k]});
  return results;
}

// The largest of the results on the CPU, at least a little.
double largest_of(const std::vector<Named>& results) {
  double largest = 1e-3;
  for (const Named& each : results) largest = std::max(largest, largest_size(each.tensor));
  return largest;
}

// Against the largest of the tensor, as sums lose what their terms lost; but at least a tenth of the largest of all,
// for gradients that are 0 because their terms cancel, as those of a bias that the softmax does not see.
double apart(const Tensor& got, const Tensor& wanted, double largest) {
  return largest_difference(got, wanted) / std::max(0.1 * largest, largest_size(wanted));
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
  DeviceDisagreement found;
  for (std::size_t k = 0; k < got.size(); ++k) {
    const double off = apart(got[k].tensor, expected[k].tensor, largest_of(expected));
    if (off > found.largest) found = {off, got[k].name};
  }
  return found;
}

OpDisagreement device_disagreement(const CheckedOp& op, DType dtype) {
  OpDisagreement found;
  for (const CheckedSample& sample : op.samples()) {
    const std::vector<Named> expected = results_on(Device::cpu(), sample, dtype),
                             got = results_on(Device::cuda(0), sample, dtype);
    for (std::size_t k = 0; k < got.size(); ++k) {
      const double off = apart(got[k].tensor, expected[k].tensor, largest_of(expected));
      if (off > std::max(found.value, found.gradients)) found.worst = sample.name + ", " + got[k].name;
      double& largest = k == 0 ? found.value : found.gradients;
      largest = std::max(largest, off);
    }
  }
  return found;
}

double device_tolerance(DType dtype) {
  return dtype == DType::f32 ? 5e-5 : dtype == DType::f64 ? 1e-12 : 16 * epsilon_of(dtype);
}

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

#include "examples/whence/verify/device_check.h"

#include <cmath>
#include <limits>

#include "autograd/backward.h"
#include "tensor/error.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

constexpr index_t dim = 8, heads = 2, length = 6, batch = 2;

using NamedNumbers = std::vector<std::pair<std::string, std::vector<double>>>;

std::vector<std::pair<std::string, Tensor>> leaves_on(Device device, const BareAttention& scheme, BareOperands& given) {
  std::vector<std::pair<std::string, Tensor>> leaves;
  for (auto [name, slot] :
      {std::pair("q", &given.q), std::pair("k", &given.k), std::pair("v", &given.v), std::pair("x", &given.x)}) {
    if (slot->defined()) leaves.emplace_back(name, *slot = requires_grad(raw::to_device(*slot, device)));
  }
  for (const Module::Parameter& parameter : scheme.root().parameters())
    leaves.emplace_back(parameter.path, parameter.tensor);
  return leaves;
}

NamedNumbers results_on(Device device, const std::string& text, const BareSetting& setting, const Executor& executor,
    DType dtype, std::uint64_t seed) {
  const BareAttention scheme(text, {.dim = dim, .heads = heads, .length = length});
  scheme.draw_parameters(seed);
  scheme.root().to(dtype);
  scheme.root().to(device);
  BareOperands given = random_operands(scheme, batch, length, seed, dtype);
  const auto leaves = leaves_on(device, scheme, given);
  const Tensor y = scheme.run(given, setting, executor).output;
  NamedNumbers results{{"output", y.to_vector()}};
  const Tensor cotangent = raw::cast(Tensor::normal(y.shape(), 0, 1, Stream(seed, "cotangent"), DType::f64), dtype);
  std::vector<Tensor> handles;
  for (const auto& [name, tensor] : leaves) handles.push_back(tensor);
  if (!tracked(y)) return results;
  const std::vector<Tensor> found = grad(y, raw::to_device(cotangent, device), handles, {.allow_unused = true});
  for (std::size_t k = 0; k < leaves.size(); ++k)
    if (found[k].defined()) results.emplace_back("gradient of " + leaves[k].first, found[k].to_vector());
  return results;
}

double largest_of(const NamedNumbers& results) {
  double largest = 1e-3;
  for (const auto& [name, numbers] : results)
    for (const double value : numbers) largest = std::max(largest, std::fabs(value));
  return largest;
}

// Against the largest of the tensor, as sums lose what their terms lost; but at least `least`, for gradients that are 0
// because their terms cancel, as those of a bias that the softmax does not see.
double relative(const std::vector<double>& got, const std::vector<double>& expected, double least) {
  double size = least, apart = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::fabs(got[i] - expected[i]);
    size = std::max(size, std::fabs(expected[i]));
    apart = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(apart, difference);
  }
  return apart / size;
}

ConformanceCell cell_of(const ConformanceSubject& subject, const Executor& executor, DType dtype) {
  if (dtype != DType::f32 && !subject.claims().exact_gradient)
    return {ConformanceCell::Mark::not_applicable, 0, "an argmax jumps with the rounding"};
  const DeviceDisagreement found = device_disagreement(subject.text(), {}, executor, dtype, subject.seed());
  const bool good = found.largest <= device_tolerance(dtype);
  return {good ? ConformanceCell::Mark::passed : ConformanceCell::Mark::failed, found.largest,
      good ? found.worst : to_text(found.worst, "; at most ", device_tolerance(dtype), " required")};
}

const Executor& small_strips() {
  static const std::unique_ptr<Executor> executor = strips_executor_of(4);
  return *executor;
}

}  // namespace

DeviceDisagreement device_disagreement(
    const std::string& text, const BareSetting& setting, const Executor& executor, DType dtype, std::uint64_t seed) {
  const NamedNumbers expected = results_on(Device::cpu(), text, setting, executor, dtype, seed);
  const NamedNumbers got = results_on(Device::cuda(0), text, setting, executor, dtype, seed);
  if (got.size() != expected.size())
    throw Error("device: ", text, ": ", got.size(), " tensors there and ", expected.size(), " on the CPU");
  DeviceDisagreement found;
  const double least = 0.1 * largest_of(expected);
  for (std::size_t k = 0; k < got.size(); ++k) {
    const double apart = relative(got[k].second, expected[k].second, least);
    if (apart > found.largest) found = {apart, got[k].first};
  }
  return found;
}

double device_tolerance(DType dtype) { return dtype == DType::f32 ? 5e-5 : 16 * epsilon_of(dtype); }

const std::vector<ConformanceCheck>& device_checks() {
  using Subject = ConformanceSubject;
  static const std::vector<ConformanceCheck> checks{
      {"f32", "output and gradients on the device as on the CPU",
          [](const Subject& s) { return cell_of(s, reference_executor(), DType::f32); }},
      {"f16", "the same in f16", [](const Subject& s) { return cell_of(s, reference_executor(), DType::f16); }},
      {"bf16", "the same in bf16", [](const Subject& s) { return cell_of(s, reference_executor(), DType::bf16); }},
      {"strips", "the same in f32 by strips of rows",
          [](const Subject& s) { return cell_of(s, small_strips(), DType::f32); }}};
  return checks;
}

}  // namespace whence

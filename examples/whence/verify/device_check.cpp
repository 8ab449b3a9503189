#include "examples/whence/verify/device_check.h"

#include <algorithm>
#include <cmath>

#include "autograd/backward.h"
#include "examples/whence/verify/bare_attention.h"
#include "examples/whence/verify/compare.h"
#include "nn/decoding.h"
#include "tensor/error.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

constexpr index_t length = 6, batch = 2;
constexpr index_t drawn = 16;  // number of tokens with drawn positions

// One scheme on one sequence. Parameters and operands are rounded to this dtype.
struct Subject {
  const std::string& text;
  SchemeSizes sizes;
  const Sequence& sequence;
  DType dtype;
  std::uint64_t seed;
};

// Results, or the reason why the executor would pass the call on.
struct Results {
  std::vector<Named> all = {};
  std::string refusal = {};
};

Results results_on(Device device, const Subject& subject, const AttendPlan& plan, DType dtype) {
  const auto& [text, sizes, sequence, given, seed] = subject;
  const BareAttention scheme(text, sizes);
  draw_parameters(scheme.root(), seed);
  for (const DType each : {given, dtype}) scheme.root().to(each);
  scheme.root().to(device);
  AttendInputs inputs = random_inputs(scheme, batch, sequence.keys, seed, given);
  inputs.sequence = sequence.on(device);
  const auto placed = [&](const Tensor& x) { return raw::to_device(raw::cast(x, dtype), device); };
  const Tensor cotangent = placed(inputs.sequence.on({}).without_padding(random_cotangent(inputs, seed), -2));
  for (const auto& [name, operand] : named_operands(inputs))
    if (operand->defined()) *operand = placed(*operand);
  if (scheme.attends()) {
    const std::string refusal = plan.executor == Executor::tiled
                                    ? refusal_by_tiles(inputs, scheme.stages(), call_of(inputs))
                                    : refusal_of(plan.executor, scheme.stages());
    if (!refusal.empty()) return {.refusal = refusal};
  }
  Results found{output_and_gradients(scheme, inputs, plan, cotangent)};
  found.all[0].tensor = inputs.sequence.without_padding(found.all[0].tensor, -2);  // rows of padding have no meaning
  return found;
}

// Returns an op's value and its gradients with respect to all floating inputs, for a random cotangent.
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

// Returns the largest number of the results on the CPU, but at least 1e-3.
double largest_of(const std::vector<Named>& results) {
  double largest = 1e-3;
  for (const Named& each : results) largest = std::max(largest, largest_size(each.tensor));
  return largest;
}

// Divides by the tensor's largest number, as sums lose what their terms lost, but at least by a tenth of the largest of
// all: some gradients are 0 because their terms cancel, as those of a bias that softmax ignores.
double relative_distance(const Tensor& got, const Tensor& wanted, double largest) {
  return largest_difference(got, wanted) / std::max(0.1 * largest, largest_size(wanted));
}

// Like relative_distance, but averaged: where rounding moves a CoPE position across a whole number, the gradient of one row jumps.
double apart_on_average(const Tensor& got, const Tensor& wanted, double largest) {
  const auto average = [](const Tensor& x) {
    double squares = 0;
    for (const double each : x.to_vector()) squares += each * each;
    return std::sqrt(squares / static_cast<double>(std::max<index_t>(x.numel(), 1)));
  };
  const Tensor there = raw::cast(raw::to_device(got, {}), DType::f64), exact = raw::cast(wanted, DType::f64);
  const double off = average(raw::binary("conformance", functions::Subtract{}, there, exact));
  return std::isnan(off) ? INFINITY : off / std::max(0.1 * largest, average(exact));
}

using Measure = double(const Tensor& got, const Tensor& wanted, double largest);
DeviceDisagreement disagreement(
    const std::vector<Named>& got, const std::vector<Named>& expected, Measure& measure = relative_distance) {
  DeviceDisagreement found;
  for (std::size_t k = 0; k < got.size(); ++k) {
    const double off = measure(got[k].tensor, expected[k].tensor, largest_of(expected));
    if (off > found.largest) found = {off, got[k].name};
  }
  return found;
}

std::function<ConformanceCell(const ConformanceSubject&)> check_of(const AttendPlan& plan, DType dtype) {
  return [plan, dtype](const ConformanceSubject& subject) {
    if (dtype != DType::f32 && !subject.claims.exact_gradient)
      return ConformanceCell::not_applicable("an argmax jumps with the rounding");
    const DeviceDisagreement found =
        device_disagreement(subject.text, Sequence::run(length), plan, dtype, subject.seed);
    return ConformanceCell::within(found.largest, device_tolerance(dtype), found.worst);
  };
}

// Compares with composed ops in f64, from one token to more than a block of rows, with shared key heads, head dims that
// fill no whole pack, and padding. Tiles round the pattern, its gradient and the results, and sum in f32: a few roundings.
// If the scheme's own ops round more, four times the error of composed ops in the same dtype is allowed: both errors are
// random. Rounding may also move a number across a network's kink. Three draws do not repeat that.
ConformanceCell tiled_on_device(const ConformanceSubject& subject) {
  struct Case {
    DType dtype;
    index_t tokens, heads, key_heads, head_dim, padding;
  };
  DeviceDisagreement worst;  // in units of what is allowed
  bool any = false;
  std::string refusal;
  for (const Case& each : {Case{DType::bf16, 1, 1, 1, 8, 0}, Case{DType::f16, 17, 4, 2, 12, 3},
           Case{DType::f32, 36, 2, 1, 8, 0}, Case{DType::bf16, 130, 2, 2, 8, 0}, Case{DType::f64, 70, 2, 1, 8, 0}}) {
    const index_t tokens = subject.claims.drawn_each_step ? std::min(each.tokens, drawn) : each.tokens;
    const SchemeSizes sizes{each.heads * each.head_dim, each.heads, std::max(tokens, drawn), 0, each.key_heads};
    if (!BareAttention(subject.text, sizes).attends())
      return ConformanceCell::not_applicable("takes no part in attention");
    for (const bool causal : {true, false}) {
      if (!causal && subject.claims.causal_only) continue;
      const Sequence sequence = each.padding > 0
                                    ? Sequence::padded(present_but(tokens, each.padding, each.padding), causal)
                                    : Sequence::run(tokens, causal);
      DeviceDisagreement least{INFINITY, {}};
      std::string refused;
      for (std::uint64_t draw = 0; draw < 3 && !(least.largest <= 1); ++draw) {
        const Subject given{subject.text, sizes, sequence, each.dtype, subject.seed + 1000 * draw};
        const Results found = results_on(Device::cuda(0), given, Executor::tiled, each.dtype);
        refused = found.refusal;
        if (!refused.empty()) break;
        const auto composed = [&](DType dtype) {
          return results_on(Device::cpu(), given, Executor::reference, dtype).all;
        };
        const std::vector<Named> exact = composed(DType::f64);
        const DeviceDisagreement off = disagreement(found.all, exact, apart_on_average);
        double allowed = device_tolerance(each.dtype);
        if (off.largest > allowed)
          allowed = std::max(allowed, 4 * disagreement(composed(each.dtype), exact, apart_on_average).largest);
        if (off.largest / allowed <= least.largest)
          least = {off.largest / allowed, to_text(off.worst, " of ", tokens, " tokens in ", each.dtype)};
      }
      if (!refused.empty()) {
        if (refusal.empty()) refusal = refused;
        // Programs need not support f64 (for an emulator with that option), f32, or masks that are not causal.
        if (causal && each.dtype != DType::f64 && each.dtype != DType::f32)
          return ConformanceCell::not_applicable(refusal);
        continue;
      }
      any = true;
      if (least.largest > worst.largest) worst = least;
    }
  }
  return any ? ConformanceCell::within(worst.largest, 1, worst.worst) : ConformanceCell::not_applicable(refusal);
}

// Compares a model's rows after prompts of 5 and 2 tokens, one by one, on the device and on the CPU, in f32. The note says
// why no graph decoded them, if none did.
ConformanceCell decoded(const ConformanceSubject& subject) {
  if (!subject.claims.sees_no_future) return ConformanceCell::not_applicable("a row needs later tokens");
  if (!subject.claims.exact_gradient) return ConformanceCell::not_applicable("an argmax jumps with the rounding");
  constexpr index_t tokens = 11, prompt = 5;
  const Tensor text = Tensor::empty({batch, tokens}, DType::i64);
  for (index_t n = 0; n < text.numel(); ++n) text.data<index_t>()[n] = n * 7 % 31;
  std::string reason;
  const auto rows_on = [&](Device device) {
    Transformer model(TransformerOptions{
        .vocabulary = 31, .length = tokens, .dim = 16, .layers = 2, .heads = 2, .scheme = subject.text});
    draw_parameters(model, subject.seed);
    model.to(DType::f32), model.to(device);
    Decoding decoding(model, tokens, {0, 3});
    std::vector<Named> rows;
    (void)decoding(raw::slice(text, 1, 0, prompt));
    for (index_t n = prompt; n < tokens; ++n)
      rows.push_back({to_text("token ", n), decoding(raw::slice(text, 1, n, n + 1))});
    reason = decoding.no_graph();
    return rows;
  };
  const std::vector<Named> expected = rows_on({});
  const DeviceDisagreement off = disagreement(rows_on(Device::cuda(0)), expected);
  return ConformanceCell::within(
      off.largest, device_tolerance(DType::f32), reason.empty() ? "by one graph" : "without a graph: " + reason);
}

}  // namespace

DeviceDisagreement device_disagreement(
    const std::string& text, const Sequence& sequence, const AttendPlan& plan, DType dtype, std::uint64_t seed) {
  const Subject subject{text, {8, 2, length}, sequence, dtype, seed};
  return disagreement(
      results_on(Device::cuda(0), subject, plan, dtype).all, results_on(Device::cpu(), subject, plan, dtype).all);
}

DeviceDisagreement device_disagreement(const CheckedOp& op, DType dtype) {
  DeviceDisagreement found;
  for (const CheckedSample& sample : op.samples()) {
    const std::vector<Named> expected = results_on(Device::cpu(), sample, dtype);
    const DeviceDisagreement own = disagreement(results_on(Device::cuda(0), sample, dtype), expected);
    if (own.largest > found.largest) found = {own.largest, sample.name + ", " + own.worst};
  }
  return found;
}

double device_tolerance(DType dtype) {
  return dtype == DType::f32 ? 5e-5 : dtype == DType::f64 ? 1e-12 : 16 * epsilon_of(dtype);
}

const std::vector<ConformanceCheck>& device_checks() {
  static const std::vector<ConformanceCheck> checks{
      {"f32", "output and gradients on the device as on the CPU", check_of(Executor::reference, DType::f32)},
      {"f16", "the same in f16", check_of(Executor::reference, DType::f16)},
      {"bf16", "the same in bf16", check_of(Executor::reference, DType::bf16)},
      {"strips", "the same in f32 by strips of rows", check_of({Executor::strips, 4}, DType::f32)},
      {"decoded", "rows of a model in f32, decoded on the device, as on the CPU", decoded},
      {"tiled", "tiles on the device, in f16, bf16 and f32, give what composed ops give in f64", tiled_on_device}};
  return checks;
}

}  // namespace whence

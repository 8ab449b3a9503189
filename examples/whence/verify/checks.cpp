// Generic tests of an op on each of its samples, in several memory layouts of its inputs; the conformance matrix of a
// scheme as one report.
#include "examples/whence/verify/checks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "autograd/backward.h"
#include "autograd/check/gradcheck.h"
#include "autograd/recording.h"
#include "examples/whence/verify/compare.h"
#include "examples/whence/verify/conformance.h"
#include "examples/whence/verify/gradient_check.h"
#include "tensor/error.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// 16- and 32-bit results may differ from f64 by this many roundings of the largest number, times the square root of the
// number of summed terms.
constexpr double roundings = 4;

using Tensors = std::vector<Tensor>;

// One sample in one layout of its inputs.
struct Case {
  const CheckedOp& op;
  const CheckedSample& sample;
  std::string layout;
  Tensors inputs;
  CheckReport& report;

  Tensor run(const Tensors& in) const { return sample.run(in); }
  void expect(bool holds, const std::string& check, const std::string& detail = {}) const {
    ++report.checks;
    if (!holds)
      report.problems.push_back(to_text(sample.name, ", ", layout, ": ", check, detail.empty() ? "" : ": ", detail));
  }
  std::vector<Named> differentiable() const {
    std::vector<Named> named;
    for (std::size_t k = 0; k < inputs.size(); ++k)
      if (inputs[k].defined() && is_floating(inputs[k].dtype())) named.push_back({to_text("input ", k), inputs[k]});
    return named;
  }
};

// Returns the largest difference divided by the largest expected number, but at least by `size`.
double relative(const Tensor& got, const Tensor& expected, double size = 1e-6) {
  return largest_difference(got, expected) / std::max({size, largest_size(expected), 1e-300});
}

Tensors floating_only(const Tensors& inputs) {
  Tensors result;
  std::ranges::copy_if(
      inputs, std::back_inserter(result), [](const Tensor& x) { return x.defined() && is_floating(x.dtype()); });
  return result;
}

Tensor cotangent(const Tensor& y, DType dtype) {
  return raw::cast(Tensor::normal(y.shape(), 0, 1, Stream(3, "cotangent"), DType::f64), dtype);
}

// Returns the message that f throws, or "".
std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const OutOfMemory&) { throw; } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct Derived {
  Tensor y;
  Tensors gradients;
};
Derived derive(const std::function<Tensor(const Tensors&)>& run, const Tensors& inputs) {
  const Tensors leaves = leaves_of(inputs);
  const Tensor y = run(leaves);
  return {y, grad(y, cotangent(y, y.dtype()), floating_only(leaves), {.allow_unused = true})};
}
Derived derive(const Case& c, const Tensors& inputs) {
  const Derived all = derive(c.sample.run, inputs);
  for (const Tensor& gradient : all.gradients)
    if (!gradient.defined())
      throw Error("an input of floating numbers has no gradient; all of them differentiable required");
  return all;
}

// ---- Layouts ----

Tensor permuted(const Tensor& x) {  // axes in memory in the opposite order
  if (x.rank() < 2) return x;
  std::vector<int> reversed;
  for (int axis = x.rank() - 1; axis >= 0; --axis) reversed.push_back(axis);
  return raw::permute(raw::copy(raw::permute(x, reversed)), reversed);
}

Tensor sliced(const Tensor& x) {  // every second element of a tensor that is NaN elsewhere
  Shape shape = x.rank() ? x.shape() : Shape{1};
  shape[-1] = 2 * shape[-1] + 1;
  const double filler = is_floating(x.dtype()) ? std::numeric_limits<double>::quiet_NaN() : 1;
  const Tensor larger = Tensor::full(shape, filler, x.dtype());
  const Tensor inside = raw::slice(larger, -1, 1, shape[-1], 2), result = x.rank() ? inside : raw::select(inside, 0, 0);
  raw::copy_into(x, result);
  return result;
}

Tensor broadcast(const Tensor& x, int axis) {  // one axis with stride 0
  if (x.rank() == 0 || x.size(axis) < 2) return x;
  return raw::expand(raw::copy(raw::slice(x, axis, 0, 1)), x.shape());
}

std::vector<Case> cases_of(const CheckedOp& op, const CheckedSample& sample, CheckReport& report) {
  std::vector<Case> cases;
  const auto add = [&](const char* name, bool floating_only, const std::function<Tensor(const Tensor&)>& lay) {
    Tensors inputs;
    bool changed = false;
    for (const Tensor& input : sample.inputs) {
      const bool skip = !input.defined() || (floating_only && !is_floating(input.dtype()));
      inputs.push_back(skip ? input : lay(input.detach()));
      changed = changed || (!skip && !(inputs.back().strides() == input.strides()));
    }
    if (changed || cases.empty()) cases.push_back({op, sample, name, inputs, report});
  };
  add("as given", false, [](const Tensor& x) { return x; });
  add("permuted", false, permuted);
  add("sliced", false, sliced);
  add("first axis broadcast", true, [](const Tensor& x) { return broadcast(x, 0); });
  add("last axis broadcast", true, [](const Tensor& x) { return broadcast(x, -1); });
  return cases;
}

// ---- Checks ----

void check_gradients(const Case& c) {
  const GradcheckReport report = gradcheck([&] { return c.run(c.inputs); }, c.differentiable());
  c.expect(report.ok(), "duals and differences", joined(report.problems, {}, "; "));
  const bool may_have_kinks = c.sample.kinked || c.layout.find("broadcast") != std::string::npos;
  for (const GradcheckInput& input : report.inputs) {
    c.expect(may_have_kinks || input.kinks.empty(), "kinks only where the sample says so",
        input.kinks.empty() ? "" : input.kinks[0]);
  }
}

void check_second_order(const Case& c) {
  const auto f = [&] { return c.run(c.inputs); };
  if (!c.op.once) {
    const GradcheckReport report = gradgradcheck(f, c.differentiable(), {.differences = false});
    c.expect(report.ok(), "second derivatives", joined(report.problems, {}, "; "));
    return;
  }
  const Tensors leaves = leaves_of(c.inputs);
  const Tensor y = c.run(leaves);
  const std::string text =
      error_of([&] { (void)grad(y, cotangent(y, y.dtype()), floating_only(leaves), {.create_graph = true}); });
  c.expect(
      text.find(c.op.name + " recorded at ") != std::string::npos &&
          text.ends_with(" is differentiable once; create_graph goes through ops with composed backwards only; use the "
                         "composed form; for attention, executor=reference"),
      "refusal of a second derivative", text);
}

void check_repeatable(const Case& c) {
  const Derived once = derive(c, c.inputs);
  const Tensors leaves = leaves_of(c.inputs), wanted = floating_only(leaves);
  const Tensor y = c.run(leaves), v = cotangent(y, y.dtype());
  for (std::size_t k = 0; k < wanted.size(); ++k)
    c.expect(same_bits(grad(y, v, {wanted[k]})[0], once.gradients[k]), "a gradient alone, the bits of all at once");
  backward(y, v, {.keep_graph = true});
  backward(y, v, {.keep_graph = true});
  Tensors sums, doubled;
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    sums.push_back(gradient(wanted[k]));
    doubled.push_back(raw::add(once.gradients[k], once.gradients[k]));
  }
  c.expect(same_bits(sums, doubled), "two backwards give exactly twice");

  const Tensors zeros = grad(y, Tensor::zeros(y.shape(), y.dtype()), wanted);
  for (const Tensor& zero : zeros) c.expect(largest_size(zero) == 0, "zero cotangent, zero gradient");
}

void check_threads(const Case& c) {
  const auto on = [&](int count) {
    const WithThreads chosen(count);
    return derive(c, c.inputs);
  };
  const Derived once = on(1);
  for (const int count : {1, 2, 3}) {
    const Derived again = on(count);
    c.expect(same_bits(once.y, again.y) && same_bits(once.gradients, again.gradients),
        "same bits again, and for any number of threads");
  }
}

void check_memory(const Case& c) {
  Tensors copies;
  for (const Tensor& input : c.inputs) copies.push_back(input.defined() ? raw::copy(input) : input);
  const Derived guarded = [&] {
    const Guards guards;
    return derive(c, c.inputs);
  }();
  bool intact = guarded.y.storage().guards_intact();
  for (const Tensor& gradient : guarded.gradients) intact = intact && gradient.storage().guards_intact();
  c.expect(intact, "sentinels around outputs and gradients");
  c.expect(same_bits(c.inputs, copies), "inputs unchanged");
  const Derived contiguous = derive(c, copies);
  c.expect(relative(guarded.y, contiguous.y) < 1e-12, "value as for contiguous inputs");
  for (std::size_t k = 0; k < guarded.gradients.size(); ++k)
    c.expect(relative(guarded.gradients[k], contiguous.gradients[k]) < 1e-11, "gradient as for contiguous inputs");
}

Tensors in_dtype(const Tensors& inputs, DType dtype) {
  Tensors result;
  for (const Tensor& input : inputs)
    result.push_back(input.defined() && is_floating(input.dtype()) ? raw::cast(input, dtype) : input);
  return result;
}

// Returns an upper estimate of the number of terms in one number of the result or of a gradient.
double terms(const Tensors& inputs, const Tensor& y) {
  index_t longest = 1, elements = 1;
  for (const Tensor& input : inputs) {
    if (!input.defined()) continue;
    elements = std::max(elements, input.numel());
    for (const index_t extent : input.shape()) longest = std::max(longest, extent);
  }
  for (const index_t extent : y.shape()) longest = std::max(longest, extent);
  const index_t folded =
      std::max(elements / std::max<index_t>(y.numel(), 1), y.numel() / std::max<index_t>(elements, 1));
  return static_cast<double>(std::max(longest, folded));
}

void check_precision(const Case& c) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensors low = in_dtype(c.inputs, dtype), high = in_dtype(low, DType::f64);
    const Derived rounded = derive(c, low), exact = derive(c, high);
    const double tolerance = roundings * epsilon_of(dtype) * std::sqrt(terms(c.inputs, exact.y));
    const double off = relative(rounded.y, exact.y);
    c.expect(off <= tolerance, "value in low precision", to_text(dtype, ": ", off, " allowed ", tolerance));
    // In a gradient, terms of the size dy y / x cancel, and dy itself is rounded. Below the smallest normal number of f16
    // digits are lost. For the other types this number is below all samples.
    const double least_normal = dtype == DType::f16 ? 0x1p-14 : 0;
    const Tensors wanted = floating_only(high);
    for (std::size_t k = 0; k < rounded.gradients.size(); ++k) {
      const double natural =
          std::max(least_normal, largest_size(cotangent(exact.y, DType::f64)) * largest_size(exact.y) /
                                     std::max(largest_size(wanted[k]), 1e-6));
      const double gradient_off = relative(rounded.gradients[k], exact.gradients[k], natural);
      c.expect(gradient_off <= 4 * tolerance, "gradient in low precision",
          to_text("of input ", k, " in ", dtype, ": ", gradient_off, " allowed ", 4 * tolerance));
    }
  }
}

// Duals are multiplied by plain loops (tensor/kernels/matmul.cpp), and each kernel has their own instance.
void check_values(const Case& c, bool is_first) {
  const NoGrad values_only;
  const auto expect = [&, y = c.run(c.inputs)](const Tensor& other, const char* what) {
    const double off = relative(y, other);
    c.expect(off < 1e-13, what, to_text(off));
  };
  if (is_first && c.op.reference) expect(c.op.reference(c.inputs), "reference by other means");
  expect(c.run(in_dtype(c.inputs, DType::dual)), "values in duals");
}

void check_composed(const Case& c) {
  if (!c.sample.composed) return;
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const Tensors inputs = in_dtype(c.inputs, dtype);
    const Derived joined = derive(c, inputs), apart = derive(c.sample.composed, inputs);
    c.expect(largest_difference(joined.y, apart.y) == 0, to_text("value of the parts in ", dtype));
    for (std::size_t k = 0; k < joined.gradients.size(); ++k) {  // the fused op gives 0 where the parts give none
      const Tensor &got = joined.gradients[k], &expected = apart.gradients[k];
      c.expect((expected.defined() ? largest_difference(got, expected) : largest_size(got)) == 0,
          to_text("gradient of the parts in ", dtype));
    }
  }
}

void check_bad_inputs(const CheckedOp& op, CheckReport& report) {
  if (!op.bad_inputs) return;
  for (const BadInput& bad : op.bad_inputs()) {
    const std::string text = error_of(bad.call);
    ++report.checks;
    if (text != bad.message && !text.ends_with(": " + bad.message))  // after the place of the call
      report.problems.push_back(
          to_text("a call that must be refused: required: '", bad.message, "', got: '", text, "'"));
  }
}

}  // namespace

CheckReport check_op(const CheckedOp& op) {
  CheckReport report{op.name};
  check_bad_inputs(op, report);
  const std::vector<CheckedSample> samples = op.samples();
  if (samples.empty()) report.problems.emplace_back("no sample given; at least one required");
  for (const CheckedSample& sample : samples) {
    for (const Case& c : cases_of(op, sample, report)) {
      try {
        check_gradients(c);
        check_second_order(c);
        check_repeatable(c);
        check_threads(c);
        check_memory(c);
        check_precision(c);
        check_values(c, &sample == samples.data());
        check_composed(c);
      } catch (const OutOfMemory&) { throw; } catch (const std::bad_alloc&) {
        throw;
      } catch (const std::exception& error) { c.expect(false, "throws", error.what()); }
    }
  }
  return report;
}

std::string CheckReport::text() const {
  std::string text = to_text(name, ": ", checks, " checks: ", ok() ? "ok" : to_text(problems.size(), " FAILED"), '\n');
  for (const std::string& problem : problems) text += "  " + problem + '\n';
  return text;
}

CheckReport check_op(const std::string& name) {
  const Checkable found = find_checkable(name);
  if (!found.op) throw InputError("'", name, "' given, a scheme; an op required; check_scheme checks it");
  return check_op(*found.op);
}

CheckReport check_scheme(const std::string& text) {
  const ConformanceRow row = conform(text, 1);
  if (!row.refusal.empty()) throw InputError(row.refusal);
  CheckReport report{row.scheme};
  report.checks = static_cast<int>(row.cells.size()) - row.count(ConformanceCell::Mark::not_applicable);
  for (std::size_t k = 0; k < row.cells.size(); ++k)
    if (row.cells[k].mark == ConformanceCell::Mark::failed)
      report.problems.push_back(to_text(conformance_checks()[k].name, ": ", row.cells[k].note));
  return report;
}

}  // namespace whence

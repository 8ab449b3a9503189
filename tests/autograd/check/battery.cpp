// Every generic test of every op in the registry that Checked<Op> fills. An op's author only writes samples.
#include <cctype>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include "autograd/check/gradcheck.h"
#include "autograd/check/samples.h"
#include "autograd/node.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

// 16- and 32-bit results may differ from f64 by this many roundings of the largest
// number, times the root of how many terms were summed.
constexpr double roundings = 4;

int checks = 0;

void expect(bool holds, const std::string& check, const std::string& detail = {}) {
  ++checks;
  CHECK_MESSAGE(holds, check, ": ", detail);
}

using Tensors = std::vector<Tensor>;

// One sample in one layout of its inputs.
struct Case {
  const CheckedOp& op;
  const CheckedSample& sample;
  std::string layout;
  Tensors inputs;

  Tensor run(const Tensors& in) const { return sample.run(in); }
  std::vector<Named> differentiable() const {
    std::vector<Named> named;
    for (std::size_t k = 0; k < inputs.size(); ++k)
      if (inputs[k].defined() && is_floating(inputs[k].dtype())) named.push_back({to_text("input ", k), inputs[k]});
    return named;
  }
};

// The largest difference, in units of the largest expected number, or of `size` where that is larger.
double relative(const Tensor& got, const Tensor& expected, double size = 1e-6) {
  return distance(got, expected) / std::max({size, largest(expected), 1e-300});
}

// Fresh leaves over the same numbers, so that no case sees another's gradients.
Tensors leaves_of(const Tensors& inputs) {
  Tensors leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.defined() ? input.detach() : input);
    if (input.defined() && is_floating(input.dtype())) requires_grad(leaves.back());
  }
  return leaves;
}
Tensors tracked_only(const Tensors& inputs) {
  Tensors result;
  std::copy_if(inputs.begin(), inputs.end(), std::back_inserter(result), [](const Tensor& x) { return tracked(x); });
  return result;
}
Tensor cotangent(const Tensor& y, DType dtype) {
  return raw::cast(Tensor::normal(y.shape(), 0, 1, Stream(3, "cotangent"), DType::f64), dtype);
}

struct Derived {
  Tensor y;
  Tensors gradients;
};
Derived derive(const std::function<Tensor(const Tensors&)>& run, const Tensors& inputs) {
  const Tensors leaves = leaves_of(inputs);
  const Tensor y = run(leaves);
  return {y, grad(y, cotangent(y, y.dtype()), tracked_only(leaves), {.allow_unused = true})};
}
Derived derive(const Case& c, const Tensors& inputs) {
  const Derived all = derive(c.sample.run, inputs);
  for (const Tensor& gradient : all.gradients) REQUIRE(gradient.defined());
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

std::vector<Case> cases_of(const CheckedOp& op, const CheckedSample& sample) {
  std::vector<Case> cases;
  const auto add = [&](const char* name, bool floating_only, const std::function<Tensor(const Tensor&)>& lay) {
    Tensors inputs;
    bool changed = false;
    for (const Tensor& input : sample.inputs) {
      const bool skip = !input.defined() || (floating_only && !is_floating(input.dtype()));
      inputs.push_back(skip ? input : lay(input.detach()));
      changed = changed || (!skip && !(inputs.back().strides() == input.strides()));
    }
    if (changed || cases.empty()) cases.push_back({op, sample, name, inputs});
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
  expect(report.ok(), "duals and differences", report.text());
  const bool may_have_kinks = c.sample.kinked || c.layout.find("broadcast") != std::string::npos;
  for (const GradcheckInput& input : report.inputs) {
    expect(may_have_kinks || input.kinks.empty(), "kinks only where the sample says so",
        input.kinks.empty() ? "" : input.kinks[0]);
  }
  checks += 1;  // one report, two opinions
}

void check_second_order(const Case& c) {
  const auto f = [&] { return c.run(c.inputs); };
  if (!c.op.once) {
    const GradcheckReport report = gradgradcheck(f, c.differentiable(), {.differences = false});
    expect(report.ok(), "second derivatives", report.text());
    return;
  }
  const Tensors leaves = leaves_of(c.inputs);
  const Tensor y = c.run(leaves);
  const std::string text =
      error_text([&] { (void)grad(y, cotangent(y, y.dtype()), tracked_only(leaves), {.create_graph = true}); });
  expect(
      text.find(c.op.name + " recorded at ") != std::string::npos &&
          text.ends_with(" is differentiable once; create_graph goes through ops with composed backwards only; use the "
                         "composed form"),
      "refusal of a second derivative", text);
}

void check_repeatable(const Case& c) {
  const Derived once = derive(c, c.inputs), again = derive(c, c.inputs);
  expect(same_bits(once.y, again.y) && same_bits(once.gradients, again.gradients), "same call twice, same bits");

  const Tensors leaves = leaves_of(c.inputs), wanted = tracked_only(leaves);
  const Tensor y = c.run(leaves), v = cotangent(y, y.dtype());
  expect(same_bits(grad(y, v, wanted), grad(y, v, wanted)), "two grads of one graph, same bits");
  for (std::size_t k = 0; k < wanted.size(); ++k)
    expect(same_bits(grad(y, v, {wanted[k]})[0], once.gradients[k]), "a gradient alone, the bits of all at once");
  backward(y, v, {.keep_graph = true});
  backward(y, v, {.keep_graph = true});
  Tensors sums, doubled;
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    sums.push_back(gradient(wanted[k]));
    doubled.push_back(raw::add(once.gradients[k], once.gradients[k]));
  }
  expect(same_bits(sums, doubled), "two backwards give exactly twice");

  const Tensors zeros = grad(y, Tensor::zeros(y.shape(), y.dtype()), wanted);
  for (const Tensor& zero : zeros) expect(largest(zero) == 0, "zero cotangent, zero gradient");
}

void check_threads(const Case& c) {
  const auto on = [&](int count) {
    const WithThreads chosen(count);
    return derive(c, c.inputs);
  };
  const Derived one = on(1);
  for (const int count : {2, 3}) {
    const Derived several = on(count);
    expect(same_bits(one.y, several.y) && same_bits(one.gradients, several.gradients),
        "same bits for any number of threads");
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
  expect(intact, "sentinels around outputs and gradients");
  expect(same_bits(c.inputs, copies), "inputs unchanged");
  const Derived contiguous = derive(c, copies);
  expect(relative(guarded.y, contiguous.y) < 1e-12, "value as for contiguous inputs");
  for (std::size_t k = 0; k < guarded.gradients.size(); ++k)
    expect(relative(guarded.gradients[k], contiguous.gradients[k]) < 1e-11, "gradient as for contiguous inputs");
}

Tensors in_dtype(const Tensors& inputs, DType dtype) {
  Tensors result;
  for (const Tensor& input : inputs)
    result.push_back(input.defined() && is_floating(input.dtype()) ? raw::cast(input, dtype) : input);
  return result;
}

Tensors floating_only(const Tensors& inputs) {
  Tensors result;
  std::copy_if(inputs.begin(), inputs.end(), std::back_inserter(result),
      [](const Tensor& x) { return x.defined() && is_floating(x.dtype()); });
  return result;
}

// An upper estimate of how many terms make one number of the result, or of a gradient.
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
    CAPTURE(std::string(to_string(dtype)));
    const Tensors low = in_dtype(c.inputs, dtype), high = in_dtype(low, DType::f64);
    const Derived rounded = derive(c, low), exact = derive(c, high);
    const double tolerance = roundings * epsilon_of(dtype) * std::sqrt(terms(c.inputs, exact.y));
    const double off = relative(rounded.y, exact.y);
    expect(off <= tolerance, "value in low precision", to_text(off, " allowed ", tolerance));
    // Gradients are what is left after terms of the size dy y / x have cancelled, and dy has a rounding of its own.
    // Below the least normal number of f16 digits are lost; the other types have it where no sample goes.
    const double least_normal = dtype == DType::f16 ? 0x1p-14 : 0;
    const Tensors wanted = floating_only(high);
    for (std::size_t k = 0; k < rounded.gradients.size(); ++k) {
      const double natural = std::max(least_normal,
          largest(cotangent(exact.y, DType::f64)) * largest(exact.y) / std::max(largest(wanted[k]), 1e-6));
      const double gradient_off = relative(rounded.gradients[k], exact.gradients[k], natural);
      expect(gradient_off <= 4 * tolerance, "gradient in low precision",
          to_text("of input ", k, ": ", gradient_off, " allowed ", 4 * tolerance));
    }
  }
}

void check_reference(const Case& c, bool is_first) {
  if (!is_first || !c.op.reference) return;
  const NoGrad values_only;
  const double off = relative(c.run(c.inputs), c.op.reference(c.inputs));
  expect(off < 1e-13, "reference from plain loops", to_text(off));
}

void check_composed(const Case& c) {
  if (!c.sample.composed) return;
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    CAPTURE(std::string(to_string(dtype)));
    const Tensors inputs = in_dtype(c.inputs, dtype);
    const Derived joined = derive(c, inputs), apart = derive(c.sample.composed, inputs);
    expect(distance(joined.y, apart.y) == 0, "value of the parts");
    for (std::size_t k = 0; k < joined.gradients.size(); ++k) {  // of the joined op 0 where the parts have none
      const Tensor &got = joined.gradients[k], &expected = apart.gradients[k];
      expect((expected.defined() ? distance(got, expected) : largest(got)) == 0, "gradient of the parts");
    }
  }
}

void check_bad_inputs(const CheckedOp& op) {
  if (!op.bad_inputs) return;
  for (const BadInput& bad : op.bad_inputs()) {
    const std::string text = message(bad.call);
    expect(text == bad.message, "error text", to_text("\n  required: ", bad.message, "\n  got:      ", text));
  }
}

// Whether each number of y is made of one of each input, that at its place, stretched as numpy does: found by moving one
// number at a time. Nothing: the sample cannot tell.
std::optional<bool> goes_by_place(const CheckedSample& sample) {
  if (sample.inputs.size() < 2) return false;
  Tensors duals;
  for (const Tensor& input : sample.inputs) {
    if (!input.defined() || !is_floating(input.dtype())) return false;
    if (input.numel() > 64 || input.numel() == 0) return std::nullopt;
    duals.push_back(raw::cast(input.detach(), DType::dual));
  }
  for (std::size_t k = 0; k < duals.size(); ++k) {
    const Shape& shape = duals[k].shape();
    for (index_t e = 0; e < duals[k].numel(); ++e) {
      Tensors moved = duals;
      moved[k] = raw::copy(duals[k]);
      moved[k].data<Dual>()[e].tangent = 1;
      const Tensor y = raw::contiguous(sample.run(moved));
      if (y.rank() < shape.rank()) return false;
      for (index_t o = 0; o < y.numel(); ++o) {
        const Shape at = position_of(o, y.shape());
        bool here = true;
        for (int axis = 0; axis < shape.rank(); ++axis)
          here = here && (shape[axis] == 1 ? 0 : at[at.rank() - shape.rank() + axis]) == position_of(e, shape)[axis];
        if (y.data<Dual>()[o].tangent != 0 && !here) return false;
      }
    }
  }
  return sample.inputs[0].numel() > 1 || sample.inputs[1].numel() > 1 ? std::optional(true) : std::nullopt;
}

}  // namespace

// Else constants beside its numbers would be left out where one is explained (autograd/inspect/explain.h).
TEST_CASE("an op says that it broadcasts, if it does") {
  int broadcasting = 0;
  for (const CheckedOp& op : checked_ops()) {
    CAPTURE(op.name);
    bool by_place = false, not_by_place = false, says = false, one_op = true;
    for (const CheckedSample& sample : op.samples()) {
      const Tensor y = sample.run(leaves_of(sample.inputs));
      if (!node_of(y)) continue;
      says = node_of(y)->broadcasts();
      one_op = one_op && node_of(y)->inputs().size() == sample.inputs.size();
      const NoGrad values_only;
      const auto found = goes_by_place(sample);
      by_place = by_place || found == true, not_by_place = not_by_place || found == false;
    }
    if (one_op) CHECK(says == (by_place && !not_by_place));
    broadcasting += says;
  }
  CHECK(broadcasting >= 7);
}

TEST_CASE("every op passes every generic test") {
  int samples = 0;
  std::set<std::string> layouts_seen;
  REQUIRE(checked_ops().size() >= 30);
  for (const CheckedOp& op : checked_ops()) {
    CAPTURE(op.name);
    const std::vector<CheckedSample> all = op.samples();
    REQUIRE(!all.empty());
    check_bad_inputs(op);
    for (const CheckedSample& sample : all) {
      CAPTURE(sample.name);
      ++samples;
      for (const Case& c : cases_of(op, sample)) {
        CAPTURE(c.layout);
        layouts_seen.insert(c.layout);
        check_gradients(c);
        check_second_order(c);
        check_repeatable(c);
        check_threads(c);
        check_memory(c);
        check_precision(c);
        check_reference(c, &sample == all.data());
        check_composed(c);
      }
    }
  }
  std::printf("battery: %zu ops, %d samples, %zu layouts, %d checks\n", checked_ops().size(), samples,
      layouts_seen.size(), checks);
}

// The functions that ops.h declares, read from the file itself: a new one without samples must not pass unseen. One of
// the list in tensor/pointwise.h must be declared there, and each must be the one that its name says.
TEST_CASE("every function of ops.h is checked") {
  std::string text;
  for (const char* name : {"/autograd/ops.h", "/autograd/ops/unary.cpp"}) text += text_of(source_folder() + name);
  const std::map<std::string, std::string> by_another_name = {{"reverse_cumulative_sum", "cumulative_sum"},
      {"cross_entropy_sum", "cross_entropy"}, {"causal_softmax", "softmax"}, {"unary", "affine"},
      {"clamp_max", "clamp"}};
  std::set<std::string> checked, declared, defined;
  for (const CheckedOp& op : checked_ops()) checked.insert(op.name);
  for (const auto& found : all_matches(text, R"(\[\[nodiscard\]\] (?:inline )?Tensor ([a-z0-9_]+)\()")) {
    const std::string& name = found[1];
    const auto other = by_another_name.find(name);
    CHECK_MESSAGE(checked.count(other == by_another_name.end() ? name : other->second), name, " has no Checked entry");
    declared.insert(name);
  }
  CHECK(declared.size() >= 40);
  for (const auto& found : all_matches(text, R"(Tensor (\w+)\([^{;]*\) \{\s*return unary\(functions::(\w+))")) {
    const std::string function = replaced(found[2], "([a-z0-9])([A-Z])", "$1_$2");
    CHECK_MESSAGE(std::ranges::equal(function, found[1], {}, [](unsigned char c) { return std::tolower(c); }), found[1],
        " is ", found[2]);
    defined.insert(found[1]);
  }
  for (const Unary f : Unary::all())
    CHECK_MESSAGE(defined.count(facts_of(f).name), std::string(facts_of(f).name), " is not in unary.cpp");
}

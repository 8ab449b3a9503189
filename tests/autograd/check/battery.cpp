// Runs every generic test on every op of checked_ops(). An op's author only writes samples.
#include <cctype>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "autograd/graph.h"
#include "autograd/samples/samples.h"
#include "examples/whence/verify/checks.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

using Tensors = std::vector<Tensor>;

// True if each number of y depends on the number at its place in each input, broadcast as in numpy. Tested by changing one
// number at a time. Nothing if the sample cannot show it.
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

// Returns the sum of a's numbers times b's, and adds the sum of their sizes to `size`.
double dot(const Tensor& a, const Tensor& b, double& size) {
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double sum = 0;
  for (std::size_t e = 0; e < x.size(); ++e) sum += x[e] * y[e], size += std::abs(x[e] * y[e]);
  return sum;
}

}  // namespace

// Without that an explanation would leave constants out (autograd/inspect/explain.h).
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

TEST_CASE("an op that names a factor is the sum of its other inputs' terms") {
  int factors = 0;
  for (const CheckedOp& op : checked_ops()) {
    CAPTURE(op.name);
    bool names = false;
    for (const CheckedSample& sample : op.samples()) {
      const Tensors inputs = leaves_of(sample.inputs);
      const Tensor y = sample.run(inputs);
      if (!node_of(y) || !node_of(y)->factor() || node_of(y)->inputs().size() != inputs.size() || y.numel() == 0)
        continue;
      names = true;
      // <dy, y> = the sum of <dx, x> over the terms
      const std::size_t factor = *node_of(y)->factor();
      const Tensor dy = Tensor::empty(y.shape(), y.dtype());
      kernels(dy.device()).random_normal(dy, Stream(0, op.name, 0), 0, 1);
      const std::vector<Tensor> dx = grad(y, dy, inputs, {.allow_unused = true});
      double terms = 0, size = 0;
      for (std::size_t k = 0; k < inputs.size(); ++k)
        if (k != factor && dx[k].defined()) terms += dot(dx[k], inputs[k], size);
      CHECK(std::abs(terms - dot(dy, y, size)) <= 1e-13 * size);
    }
    factors += names;
  }
  CHECK(factors >= 12);
}

TEST_CASE("every op passes every generic test") {
  CHECK(checked_ops().size() >= 69);
  for (const CheckedOp& op : checked_ops()) {
    const CheckReport report = check_op(op);
    CHECK_MESSAGE(report.ok(), report.text());
  }
}

// Reads the functions that ops.h declares from the file, so that a new one without samples fails. Each function in
// the list of tensor/pointwise.h must be declared there under its own name.
TEST_CASE("every function of ops.h is checked") {
  std::string text;
  for (const char* name : {"/autograd/ops.h", "/autograd/ops/unary.cpp"}) text += text_of(source_folder() + name);
  const std::map<std::string, std::string> by_another_name = {{"reverse_cumulative_sum", "cumulative_sum"},
      {"cross_entropy_sum", "cross_entropy"}, {"unary", "affine"}, {"clamp_max", "clamp"}};
  std::set<std::string> checked, declared, defined;
  for (const CheckedOp& op : checked_ops()) checked.insert(op.name);
  for (const auto& found : all_matches(text, R"(\[\[nodiscard\]\] (?:inline )?Tensor ([a-z0-9_]+)\()")) {
    const std::string& name = found[1];
    const auto other = by_another_name.find(name);
    CHECK_MESSAGE(checked.count(other == by_another_name.end() ? name : other->second), name, " has no samples");
    declared.insert(name);
  }
  CHECK(declared.size() >= 62);
  for (const auto& found : all_matches(text, R"(Tensor (\w+)\([^{;]*\) \{\s*return unary\(functions::(\w+))")) {
    const std::string function = replaced(found[2], "([a-z0-9])([A-Z])", "$1_$2");
    CHECK_MESSAGE(std::ranges::equal(function, found[1], {}, [](unsigned char c) { return std::tolower(c); }), found[1],
        " is ", found[2]);
    defined.insert(found[1]);
  }
  for (const Unary f : Unary::all())
    CHECK_MESSAGE(defined.count(facts_of(f).name), std::string(facts_of(f).name), " is not in unary.cpp");
}

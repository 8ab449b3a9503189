// check_op and check_scheme, as called in a user's tests: correct ones pass, and each fault is named.
#include "examples/whence/verify/checks.h"

#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

using Tensors = std::vector<Tensor>;

CheckedOp op_of(const std::function<Tensor(const Tensor&)>& f, const Tensor& x = normal({2, 3}, 1)) {
  const auto run = [f](const Tensors& in) { return f(in[0]); };
  return {"planted", [=] { return Samples{{"two by three", {x}, run}}; }};
}

// Returns the problems found in an op with one fault, or "".
std::string found(const CheckedOp& op) {
  const CheckReport report = check_op(op);
  CHECK(report.checks > 10);
  CHECK(report.ok() == !has(report.text(), "FAILED"));
  return joined(report.problems, {}, "\n");
}

}  // namespace

TEST_CASE("check_op: an op without a fault passes, and each fault is named with its sample and layout") {
  CHECK(found(op_of([](const Tensor& x) { return square(x); })) == "");
  CHECK(has(found(op_of([](const Tensor& x) { return x * x.detach(); })), "three, permuted:"));
  CHECK(has(found(op_of([](const Tensor& x) { return relu(x); }, Tensor::zeros({2, 3}, DType::f64))), "kinks only"));
  int calls = 0;
  CHECK(has(found(op_of([&](const Tensor& x) { return x * (++calls % 2 ? 1.0 : 2.0); })), "same bits"));
  CHECK(has(found(op_of([](const Tensor& x) { return x * (threads() == 2 ? 2.0 : 1.0); })), "same bits"));
  CHECK(has(found(op_of([](const Tensor& x) { return x * (x.strides()[1] == 1 ? 1.0 : 2.0); })), "contiguous inputs"));
  CHECK(has(
      found(op_of([](const Tensor& x) { return x.dtype() == DType::bf16 ? x * 1.1 : x * 1.0; })), "precision: bf16:"));
  CheckedOp op = op_of([](const Tensor& x) { return square(x); });
  op.reference = [](const Tensors& in) { return in[0]; };
  CHECK(has(found(op), "other means"));
  op.reference = {};
  op.once = true;
  CHECK(has(found(op), "second derivative"));
  op.once = false;
  op.bad_inputs = [] { return std::vector<BadInput>{{"planted: is refused", [] {}}}; };
  CHECK(has(found(op), "refused', got: ''"));
  op.samples = [] { return Samples(); };
  CHECK(has(check_op(op).text(), "no sample"));
}

TEST_CASE("check_op and check_scheme: by name; what is none is refused") {
  CHECK(check_op("softmax").text().starts_with("softmax: "));
  CHECK(has(error_text<InputError>([] { (void)check_op("rope"); }), "'rope' given"));
  CHECK(has(error_text<InputError>([] { (void)check_op("sofmax"); }), "mean 'softmax'?"));
  checked_ops().push_back({"softmax", [] { return Samples(); }});
  CHECK(has(error_text<InputError>([] { (void)check_op("softmax"); }), "two ops"));
  checked_ops().pop_back();
  CHECK(check_scheme("cope( p_max = 4 )").text() == "cope(p_max=4): 16 checks: ok\n");
  CHECK(
      has(error_text<InputError>([] { (void)check_scheme("cope(z_from=rotated)"); }), "without a scheme that rotates"));
}

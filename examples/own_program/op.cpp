// Softsign: it rises towards 1, and never reaches 1.
//   y = x / (1 + |x|)        dx = (1 - |y|)^2 dy
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/samples/samples.h"
#include "tensor/raw.h"

using namespace whence;

Tensor softsign(const Tensor& x, Site site);

namespace {

struct Softsign {
  static constexpr const char* name = "softsign";
  struct Saved {
    SavedTensor y;
  };

  // Recording is off in here.
  Tensor forward(Saved& saved, const Tensor& x) const {
    raw::require_floating(name, "x", x);
    const Tensor y = x / (abs(x) + 1.0);
    saved.y.output(y);
    return y;
  }
  // Uses functions that have gradients themselves, so that this op can be differentiated again.
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const {
    return {square(affine(abs(saved.y.get()), -1, 1)) * dy};
  }
};

// For `gradcheck softsign` and check_op: samples, calls that must be refused, and a reference by other means.
Samples samples() {
  return {{"of either sign", {draw::normal({3, 4})}, call(softsign)},
      {"large", {draw::uniform({2, 5}, 20, 40)}, call(softsign)}};
}
std::vector<BadInput> bad_inputs() {
  return {refusal(
      "softsign: x is i64; a floating dtype is required; convert with cast", softsign, Tensor::zeros({2}, DType::i64))};
}
Tensor reference(const std::vector<Tensor>& in) {
  std::vector<double> numbers = in[0].to_vector();
  for (double& x : numbers) x /= x < 0 ? 1 - x : 1 + x;
  return Tensor::of(numbers, in[0].shape(), DType::f64);
}
const Checked checked({"softsign", samples, bad_inputs, reference}, Accepts::any_call);

}  // namespace

Tensor softsign(const Tensor& x, Site site) { return apply(Softsign{}, site, x); }

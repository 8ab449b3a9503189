// An op of your own, and the check of its gradient: scores limited to (-cap, cap), as in Gemma 2.
//   y = cap tanh(x / cap)        dx = (1 - (y / cap)^2) dy
#include <iostream>

#include "autograd/check/gradcheck.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/random.h"

using namespace whence;

struct SoftCap {
  static constexpr const char* name = "soft_cap";
  double cap;  // an attribute: not differentiated
  struct Saved {
    SavedTensor y;
  };

  // Recording is off in here, so that any function of autograd/ops.h may be used.
  Tensor forward(Saved& saved, const Tensor& x) const {
    const Tensor y = tanh(x * (1 / cap)) * cap;
    saved.y.output(y);  // an input would be saved by `saved.x = x`
    return y;
  }
  // Uses functions that have gradients themselves, so that this op can be differentiated again.
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const {
    return {affine(square(saved.y.get() * (1 / cap)), -1, 1) * dy};
  }
};

Tensor soft_cap(const Tensor& x, double cap, Site site = Site::current()) { return apply(SoftCap{cap}, site, x); }

// The same op with a derivative that is wrong by a thousandth.
struct Wrong : SoftCap {
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1> needs) const {
    return {SoftCap::backward(saved, dy, needs)[0] * 1.001};
  }
};

int main() {
  const Tensor query = Tensor::normal({2, 5, 4}, 0, 1, Stream(0, "query"), DType::f64);
  const Tensor key = Tensor::normal({2, 5, 4}, 0, 1, Stream(0, "key"), DType::f64);
  const auto attention = [&] { return softmax(soft_cap(matmul(query, transpose(key)), 2)); };
  const std::vector<Named> inputs = {{"query", query}, {"key", key}};
  std::cout << "gradient\n" << gradcheck(attention, inputs).text();
  std::cout << "gradient of the gradient\n" << gradgradcheck(attention, inputs).text();
  const auto wrong = [&] { return apply(Wrong{{2}}, Site::current(), query); };
  std::cout << "with a factor of 1.001, which the check has to find\n" << gradcheck(wrong, {{"query", query}}).text();
}

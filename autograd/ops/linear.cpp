// The affine map of a layer.    y = x W' + b,  x:[... in]  W:[out in]  b:[out]  ->  y:[... out]
//   dx = dy W    dW = dy' x    db = sum over rows of dy        (leading axes are folded into rows: no batched product)
#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct Linear {
  static constexpr const char* name = "linear";
  static constexpr std::size_t factor = 1;
  struct Saved {
    SavedTensor x, weight;
  };

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    check(x, weight, bias);
    saved.x = x;
    saved.weight = weight;
    Shape shape = x.shape();
    shape[-1] = weight.size(0);
    // The product's own kernel adds the bias while a tile is still in cache.
    Kernels& on = kernels(x);
    const Tensor rows = raw::reshape(x, as_rows(x.shape())), y = on.product_rows(x, rows.size(0), weight.size(0));
    on.matmul(rows, raw::transpose(weight), bias.defined() ? &bias : nullptr, 1, y);
    return raw::reshape(y, shape);
  }

  Grads<3> backward(const Saved& saved, const Tensor& dy, Needs<3> needs) const {
    const Tensor rows = reshape(dy, as_rows(dy.shape()));
    Grads<3> grads;
    if (needs[0]) grads[0] = reshape(matmul(rows, saved.weight.get()), saved.x.peek().shape());
    const auto x_rows = [&] {
      const Tensor x = saved.x.get();
      return reshape(x, as_rows(x.shape()));
    };
    if (needs[1] && needs[2] && !recording()) {  // one kernel if the device has it
      const Tensor inputs = x_rows();
      grads[1] = Tensor::like(dy, {rows.size(1), inputs.size(1)});
      grads[2] = Tensor::like(dy, {rows.size(1)});
      kernels(dy).matmul_row_sums(raw::transpose(rows), inputs, grads[1], grads[2]);
    } else {
      if (needs[1]) grads[1] = matmul(transpose(rows), x_rows());
      if (needs[2]) grads[2] = sum(rows, {0});
    }
    return grads;
  }

  static void check(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    raw::require_floating(name, "x", x);
    raw::require_alike(name, "x", x, "weight", weight);
    if (x.rank() == 0 || weight.rank() != 2 || x.size(-1) != weight.size(1)) {
      fail(name,
          to_text("x is ", x.shape(), ", weight is ", weight.shape(), "; x [... in] and weight [out,in] required"));
    }
    if (!bias.defined()) return;
    raw::require_alike(name, "x", x, "bias", bias);
    raw::require_shape(name, "bias", bias, {weight.size(0)});
  }
};

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Site site) {
  return apply(Linear{}, site, x, weight, bias);
}

}  // namespace whence

// The affine map of a layer.    y = x W' + b,  x:[... in]  W:[out in]  b:[out]  ->  y:[... out]
//   dx = dy W    dW = dy' x    db = sum over rows of dy        (leading axes of x folded into rows: three products, none batched)
#include "autograd/checked.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

Shape as_rows(const Shape& shape) {
  index_t rows = 1;
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows *= shape[axis];
  return {rows, shape[-1]};
}

struct Linear {
  static constexpr const char* name = "linear";
  struct Saved {
    SavedTensor x, weight;
  };

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    check(x, weight, bias);
    saved.x = x;
    saved.weight = weight;
    Shape shape = x.shape();
    shape[-1] = weight.size(0);
    // The bias is added by the product's own kernel while a tile is still in cache.
    const Tensor y = raw::matmul(raw::reshape(x, as_rows(x.shape())), raw::transpose(weight), 1, bias.defined() ? &bias : nullptr);
    return raw::reshape(y, shape);
  }

  Grads<3> backward(const Saved& saved, const Tensor& dy, Needs<3> needs) const {
    // y = x W' + b, row by row
    const Tensor rows = reshape(dy, as_rows(dy.shape()));
    Grads<3> grads;
    if (needs[0]) {
      const Tensor x_rows = matmul(rows, saved.weight.get());
      grads[0] = reshape(x_rows, saved.x.peek().shape());
    }
    if (needs[1]) {
      const Tensor x = saved.x.get();
      grads[1] = matmul(transpose(rows), reshape(x, as_rows(x.shape())));
    }
    if (needs[2]) grads[2] = sum(rows, {0});
    return grads;
  }

  static void check(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    raw::require_floating(name, "x", x);
    raw::require_same_dtype(name, x, weight);
    raw::require_same_device(name, x, weight);
    if (x.rank() == 0 || weight.rank() != 2 || x.size(-1) != weight.size(1)) {
      fail(name, concat("x is ", x.shape(), ", weight is ", weight.shape(), "; x [... in] and weight [out,in] required"));
    }
    if (!bias.defined()) return;
    raw::require_same_dtype(name, x, bias);
    raw::require_same_device(name, x, bias);
    raw::require_shape(name, "bias", bias, {weight.size(0)});
  }

  static Samples<Linear> samples() {
    return {{"rows", {}, {draw::normal({3, 4}), draw::normal({5, 4}), draw::normal({5})}},
            {"leading axes", {}, {draw::normal({2, 3, 4}), draw::normal({2, 4}), draw::normal({2})}},
            {"no bias", {}, {draw::normal({3, 4}), draw::normal({1, 4}), Tensor()}},
            {"one row without an axis", {}, {draw::normal({4}), draw::normal({3, 4}), draw::normal({3})}},
            {"no rows", {}, {draw::normal({0, 4}), draw::normal({3, 4}), draw::normal({3})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"linear: x is [2,3], weight is [3,4]; x [... in] and weight [out,in] required",
             [] {
               (void)linear(Tensor::zeros({2, 3}), Tensor::zeros({3, 4}), {});
             }},
            {"linear: bias is [3]; [4] required", [] {
               (void)linear(Tensor::zeros({2, 3}), Tensor::zeros({4, 3}), Tensor::zeros({3}));
             }}};
  }
  static Tensor reference(const std::vector<Tensor>& in) {
    std::vector<double> y;
    for (index_t row = 0; row < in[0].size(0); ++row) {
      for (index_t out = 0; out < in[1].size(0); ++out) {
        double total = in[2].at({out});
        for (index_t k = 0; k < in[0].size(1); ++k) total += in[0].at({row, k}) * in[1].at({out, k});
        y.push_back(total);
      }
    }
    return Tensor::of(y, {in[0].size(0), in[1].size(0)}, DType::f64);
  }
};

const Checked<Linear> checked;

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Site at) { return apply(Linear{}, at, x, weight, bias); }

}  // namespace whence

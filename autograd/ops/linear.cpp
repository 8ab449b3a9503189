// The affine map of a layer.    y = x W' + b,  x:[... in]  W:[out in]  b:[out]  ->  y:[... out]
//   dx = dy W    dW = dy' x    db = sum over rows of dy        (leading axes folded into rows: no product is batched)
// And with GELU behind it.      y = gelu(h),  h = x W' + b       dh = gelu'(h) dy, then as above
#include "autograd/checked.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

void check(const char* name, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  raw::require_floating(name, "x", x);
  raw::require_alike(name, "x", x, "weight", weight);
  if (x.rank() == 0 || weight.rank() != 2 || x.size(-1) != weight.size(1)) {
    fail(
        name, to_text("x is ", x.shape(), ", weight is ", weight.shape(), "; x [... in] and weight [out,in] required"));
  }
  if (!bias.defined()) return;
  raw::require_alike(name, "x", x, "bias", bias);
  raw::require_shape(name, "bias", bias, {weight.size(0)});
}

// y = x W' + b, row by row
Grads<3> linear_backward(const SavedTensor& x, const SavedTensor& weight, const Tensor& dy, Needs<3> needs) {
  const Tensor rows = reshape(dy, as_rows(dy.shape()));
  Grads<3> grads;
  if (needs[0]) {
    const Tensor x_rows = matmul(rows, weight.get());
    grads[0] = reshape(x_rows, x.peek().shape());
  }
  if (needs[1]) {
    const Tensor inputs = x.get();
    grads[1] = matmul(transpose(rows), reshape(inputs, as_rows(inputs.shape())));
  }
  if (needs[2]) grads[2] = sum(rows, {0});
  return grads;
}

struct Linear {
  static constexpr const char* name = "linear";
  struct Saved {
    SavedTensor x, weight;
  };

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    check(name, x, weight, bias);
    saved.x = x;
    saved.weight = weight;
    Shape shape = x.shape();
    shape[-1] = weight.size(0);
    // The bias is added by the product's own kernel while a tile is still in cache.
    const Tensor y =
        raw::matmul(raw::reshape(x, as_rows(x.shape())), raw::transpose(weight), 1, bias.defined() ? &bias : nullptr);
    return raw::reshape(y, shape);
  }

  Grads<3> backward(const Saved& saved, const Tensor& dy, Needs<3> needs) const {
    return linear_backward(saved.x, saved.weight, dy, needs);
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
        {"linear: bias is [3]; [4] required",
            [] {
              (void)linear(Tensor::zeros({2, 3}), Tensor::zeros({4, 3}), Tensor::zeros({3}));
            }},
        {"linear: x is f32, weight is f64; equal dtypes required; convert with cast", [] {
           (void)linear(Tensor::zeros({2, 3}), Tensor::zeros({4, 3}, DType::f64), {});
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

struct LinearGelu {
  static constexpr const char* name = "linear_gelu";
  struct Saved {
    SavedTensor x, weight, bias, before;  // before: h
  };

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    check(name, x, weight, bias);
    Shape shape = x.shape();
    shape[-1] = weight.size(0);
    const Tensor before = Tensor::empty(as_rows(shape), x.dtype(), x.device());
    const Tensor y = Tensor::empty(before.shape(), x.dtype(), x.device());
    kernels(x.device())
        .matmul_gelu(
            raw::reshape(x, as_rows(x.shape())), raw::transpose(weight), bias.defined() ? &bias : nullptr, before, y);
    saved.x = x;
    saved.weight = weight;
    if (bias.defined()) saved.bias = bias;
    saved.before = raw::reshape(before, shape);
    return raw::reshape(y, shape);
  }

  Grads<3> backward(const Saved& saved, const Tensor& dy, Needs<3> needs) const {
    // y = gelu(h); the saved h has no history, so a backward that is itself recorded computes it again from what has
    const Tensor h = recording()
                         ? linear(saved.x.get(), saved.weight.get(), saved.bias.defined() ? saved.bias.get() : Tensor())
                         : saved.before.get();
    return linear_backward(saved.x, saved.weight, unary_backward(functions::Gelu{}, h, dy), needs);
  }

  static Samples<LinearGelu> samples() {
    return {{"rows", {}, {draw::normal({3, 4}), draw::normal({5, 4}), draw::normal({5})}},
        {"leading axes, a width of 8", {}, {draw::normal({2, 3, 4}), draw::normal({8, 4}), draw::normal({8})}},
        {"no bias", {}, {draw::normal({3, 4}), draw::normal({8, 4}), Tensor()}},
        // Positive, so that y is not so small beside h that the rounding of h is all there is.
        {"one row without an axis", {}, {draw::uniform({4}, 0.1, 1), draw::uniform({3, 4}, 0.1, 1), draw::normal({3})}},
        {"no rows", {}, {draw::normal({0, 4}), draw::normal({3, 4}), draw::normal({3})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"linear_gelu: x is [2,3], weight is [3,4]; x [... in] and weight [out,in] required", [] {
               (void)linear_gelu(Tensor::zeros({2, 3}), Tensor::zeros({3, 4}), {});
             }}};
  }
};

const Checked<Linear> checked;
const Checked<LinearGelu> checked_gelu;

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Site at) {
  return apply(Linear{}, at, x, weight, bias);
}

Tensor linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias, Site at) {
  return apply(LinearGelu{}, at, x, weight, bias);
}

Tensor linear_gelu_linear(const Tensor& x, const Tensor& weight_in, const Tensor& bias_in, const Tensor& weight_out,
    const Tensor& bias_out, Site at) {
  return linear(linear_gelu(x, weight_in, bias_in, at), weight_out, bias_out, at);
}

}  // namespace whence

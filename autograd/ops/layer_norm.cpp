// Layer normalisation.  (Ba et al. 2016)    x:[... c]  weight w:[c]  bias b:[c]  ->  y:[... c]
//   n = (x - mean) r,  r = 1 / sqrt(variance + epsilon)        y = n w + b
//   dx = r (g - mean(g) - n mean(g n)),  g = dy w        dw = sum over rows of dy n        db = sum over rows of dy
#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct LayerNorm {
  static constexpr const char* name = "layer_norm";
  static constexpr bool once = true;
  double epsilon;
  struct Saved {
    SavedTensor x, weight, mean, rstd;
  };

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    check(x, weight, bias);
    const Tensor from = raw::contiguous(x), w = raw::contiguous(weight), b = raw::contiguous(bias);
    const index_t rows = x.numel() / x.size(-1);
    // Statistics in compute precision: backward sees the numbers that forward divided by, not their rounding to 16 bit.
    const DType wide = compute_dtype(x.dtype());
    const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    const Tensor mean = Tensor::empty({rows}, wide, x.device()), rstd = Tensor::empty({rows}, wide, x.device());
    kernels(x.device()).layer_norm(from, w, b, epsilon, y, mean, rstd);
    saved.x = from;
    saved.weight = w;
    saved.mean = mean;
    saved.rstd = rstd;
    return y;
  }

  Grads<3> backward(const Saved& saved, const Tensor& dy, Needs<3>) const {
    const Tensor x = saved.x.get(), weight = saved.weight.get();
    const Tensor dx = Tensor::empty(x.shape(), x.dtype(), x.device());
    const Tensor dw = Tensor::empty(weight.shape(), x.dtype(), x.device()),
                 db = Tensor::empty(weight.shape(), x.dtype(), x.device());
    kernels(x.device())
        .layer_norm_backward(x, weight, saved.mean.get(), saved.rstd.get(), raw::contiguous(dy), dx, dw, db);
    return {dx, dw, db};
  }

  void check(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    raw::require_floating(name, "x", x);
    if (x.rank() == 0 || x.size(-1) == 0) fail(name, "x is ", x.shape(), "; [... c] with c > 0 required");
    for (const Tensor* parameter : {&weight, &bias}) {
      const char* argument = parameter == &weight ? "weight" : "bias";
      raw::require_alike(name, "x", x, argument, *parameter);
      raw::require_shape(name, argument, *parameter, {x.size(-1)});
    }
    if (!(epsilon >= 0)) fail(name, "epsilon ", epsilon, " given; 0 or more required");
  }

  static Samples<LayerNorm> samples() {
    return {{"rows", {1e-5}, {draw::normal({4, 7}), draw::normal({7}), draw::normal({7})}},
        {"leading axes", {1e-5}, {draw::normal({2, 3, 16}), draw::normal({16}), draw::normal({16})}},
        {"one row without an axis", {1e-3}, {draw::normal({5}), draw::normal({5}), draw::normal({5})}},
        {"two channels", {1e-5}, {draw::normal({3, 2}), draw::normal({2}), draw::normal({2})}},
        {"no rows", {1e-5}, {draw::normal({0, 3}), draw::normal({3}), draw::normal({3})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"layer_norm: weight is [4]; [3] required",
                [] {
                  (void)layer_norm(Tensor::zeros({2, 3}), Tensor::zeros({4}), Tensor::zeros({3}));
                }},
        {"layer_norm: x is [2,0]; [... c] with c > 0 required", [] {
           (void)layer_norm(Tensor::zeros({2, 0}), Tensor::zeros({0}), Tensor::zeros({0}));
         }}};
  }
  static Tensor reference(const std::vector<Tensor>& in) {
    std::vector<double> y;
    const index_t width = in[0].size(1);
    for (index_t row = 0; row < in[0].size(0); ++row) {
      double mean = 0, variance = 0;
      for (index_t k = 0; k < width; ++k) mean += in[0].at({row, k}) / static_cast<double>(width);
      for (index_t k = 0; k < width; ++k)
        variance += std::pow(in[0].at({row, k}) - mean, 2) / static_cast<double>(width);
      for (index_t k = 0; k < width; ++k)
        y.push_back((in[0].at({row, k}) - mean) / std::sqrt(variance + 1e-5) * in[1].at({k}) + in[2].at({k}));
    }
    return Tensor::of(y, in[0].shape(), DType::f64);
  }
};

const Checked<LayerNorm> checked;

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, Site at) {
  return apply(LayerNorm{epsilon}, at, x, weight, bias);
}

}  // namespace whence

// Root mean square normalisation.  (Zhang and Sennrich 2019)    x:[... c]  weight w:[c]  ->  y:[... c]
//   n = x r,  r = 1 / sqrt(mean(x^2) + epsilon)        y = n w
//   dx = r (g - n mean(g n)),  g = dy w        dw = sum over rows of dy n
#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct RmsNorm {
  static constexpr const char* name = "rms_norm";
  static constexpr bool once = true;
  double epsilon;
  struct Saved {
    SavedTensor x, weight, rstd;
  };

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight) const {
    check(x, weight);
    const Tensor from = raw::contiguous(x), w = raw::contiguous(weight);
    const index_t rows = x.numel() / x.size(-1);
    const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    // In compute precision: backward sees the number that forward multiplied by, not its rounding to 16 bit.
    const Tensor rstd = Tensor::empty({rows}, compute_dtype(x.dtype()), x.device());
    kernels(x.device()).rms_norm(from, w, epsilon, y, rstd);
    saved.x = from;
    saved.weight = w;
    saved.rstd = rstd;
    return y;
  }

  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2> needs) const {
    const Tensor x = saved.x.get(), w = saved.weight.get();
    Grads<2> grads;
    if (needs[0]) grads[0] = Tensor::empty(x.shape(), x.dtype(), x.device());
    if (needs[1]) grads[1] = Tensor::empty(w.shape(), x.dtype(), x.device());
    kernels(x.device()).rms_norm_backward(x, w, saved.rstd.get(), raw::contiguous(dy), grads[0], grads[1]);
    return grads;
  }

  void check(const Tensor& x, const Tensor& weight) const {
    raw::require_floating(name, "x", x);
    if (x.rank() == 0 || x.size(-1) == 0) fail(name, "x is ", x.shape(), "; [... c] with c > 0 required");
    raw::require_alike(name, "x", x, "weight", weight);
    raw::require_shape(name, "weight", weight, {x.size(-1)});
    if (!(epsilon >= 0)) fail(name, "epsilon ", epsilon, " given; 0 or more required");
  }

  static Samples<RmsNorm> samples() {
    return {{"rows", {1e-6}, {draw::normal({4, 7}), draw::normal({7})}},
        {"leading axes", {1e-6}, {draw::normal({2, 3, 16}), draw::normal({16})}},
        {"several runs of rows, blocks of channels", {1e-6}, {draw::normal({130, 70}), draw::normal({70})}},
        {"one row without an axis", {1e-3}, {draw::normal({5}), draw::normal({5})}},
        {"one channel", {0.1}, {draw::normal({3, 1}), draw::normal({1})}},
        {"a row of zeros", {1e-2}, {Tensor::zeros({2, 3}, DType::f64), draw::normal({3})}},
        {"no rows", {1e-6}, {draw::normal({0, 3}), draw::normal({3})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"rms_norm: weight is [4]; [3] required",
                [] {
                  (void)rms_norm(Tensor::zeros({2, 3}), Tensor::zeros({4}));
                }},
        {"rms_norm: x is [2,0]; [... c] with c > 0 required",
            [] {
              (void)rms_norm(Tensor::zeros({2, 0}), Tensor::zeros({0}));
            }},
        {"rms_norm: epsilon -1 given; 0 or more required", [] {
           (void)rms_norm(Tensor::zeros({2, 3}), Tensor::zeros({3}), -1);
         }}};
  }
  static Tensor reference(const std::vector<Tensor>& in) {
    std::vector<double> y;
    const index_t width = in[0].size(1);
    for (index_t row = 0; row < in[0].size(0); ++row) {
      double squares = 0;
      for (index_t k = 0; k < width; ++k) squares += std::pow(in[0].at({row, k}), 2) / static_cast<double>(width);
      for (index_t k = 0; k < width; ++k) y.push_back(in[0].at({row, k}) / std::sqrt(squares + 1e-6) * in[1].at({k}));
    }
    return Tensor::of(y, in[0].shape(), DType::f64);
  }
};

const Checked<RmsNorm> checked;

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon, Site at) {
  return apply(RmsNorm{epsilon}, at, x, weight);
}

}  // namespace whence

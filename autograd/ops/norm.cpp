// Normalisation of rows, of x or of a residual sum.    x, added:[... c]  weight w, bias b:[c]  ->  y:[... c]
//   s = x + added, or x if nothing is added
//   n = (s - mean) r,  r = 1 / sqrt(variance + epsilon),  y = n w + b        layer norm (Ba et al. 2016)
//   n = s r,  r = 1 / sqrt(mean(s^2) + epsilon),  y = n w                    without a bias (Zhang and Sennrich 2019)
//   dx = dadded = r (g - mean(g) - n mean(g n)) + the gradient of s itself,  g = dy w    (mean(g) for layer norm only)
//   dw = sum over rows of dy n        db = sum over rows of dy
#include "autograd/backward.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using Inputs = std::vector<Tensor>;

struct Norm {
  double epsilon;
  const char* called;  // the public function
  struct Saved {
    SavedTensor sum, weight, mean, rstd;
  };
  const char* label() const { return called; }

  // Returns s and y. `added` and `bias` may be undefined.
  std::array<Tensor, 2> forward(
      Saved& saved, const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias) const {
    check(x, added, weight, bias);
    const auto contiguous = [](const Tensor& given) { return given.defined() ? raw::contiguous(given) : given; };
    const auto made = [&](const Shape& shape, DType dtype) { return Tensor::empty(shape, dtype, x.device()); };
    const Tensor from = contiguous(x), w = contiguous(weight), y = made(x.shape(), x.dtype());
    const Tensor sum = added.defined() ? made(x.shape(), x.dtype()) : from;
    // Statistics are in compute precision: backward sees the numbers that forward divided by, not rounded to 16 bits.
    const Shape rows{x.numel() / x.size(-1)};
    const DType wide = compute_dtype(x.dtype());
    const Tensor mean = bias.defined() ? made(rows, wide) : Tensor(), rstd = made(rows, wide);
    kernels(x).norm(from, contiguous(added), w, contiguous(bias), epsilon, sum, y, mean, rstd);
    if (added.defined())
      saved.sum.output(sum);
    else
      saved.sum.as(sum, x);
    saved.weight.as(w, weight);
    if (mean.defined()) saved.mean = mean;
    saved.rstd = rstd;
    return {sum, y};
  }

  Grads<4> backward(const Saved& saved, std::span<const Tensor, 2> dy, Needs<4> needs) const {
    const Tensor sum = saved.sum.get(), weight = saved.weight.get();
    const Tensor dsum = dy[0].defined() && !recording() ? raw::contiguous(dy[0]) : dy[0];
    if (!dy[1].defined()) {
      const Tensor nothing = Tensor::zeros(weight.shape(), weight.dtype(), weight.device());
      return {dsum, dsum, nothing, nothing};
    }
    if (recording()) {
      const auto composed = [&](const Inputs& in) { return normed(in[0], in[1], saved.mean.defined(), epsilon); };
      const auto [dnormed, dscale] = gradients_of(composed, std::array{sum, weight}, dy[1]);
      const Tensor dx = dsum.defined() && dnormed.defined() ? dsum + dnormed : dnormed;
      return {dx, needs[1] ? dx : Tensor(), dscale, sum_to(dy[1], weight.shape())};
    }
    const auto made = [](bool needed, const Tensor& like) { return needed ? Tensor::like(like) : Tensor(); };
    const Tensor dx = made(needs[0] || needs[1], sum), dweight = made(needs[2], weight), dbias = made(needs[3], weight);
    kernels(sum).norm_backward(sum, weight, saved.mean.defined() ? saved.mean.get() : Tensor(), saved.rstd.get(), dsum,
        raw::contiguous(dy[1]), dx, dweight, dbias);
    return {dx, needs[1] ? dx : Tensor(), dweight, dbias};
  }

  // Returns n w, computed from the sums.
  static Tensor normed(const Tensor& s, const Tensor& weight, bool centred, double epsilon) {
    const Tensor wide = cast(s, compute_dtype(s.dtype())), c = centred ? wide - mean(wide, {-1}, true) : wide;
    return cast(c / sqrt(mean(square(c), {-1}, true) + epsilon) * cast(weight, wide.dtype()), s.dtype());
  }

  void check(const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias) const {
    raw::require_floating(called, "x", x);
    if (x.rank() == 0 || x.size(-1) == 0) fail(called, "x is ", x.shape(), "; [... c] with c > 0 required");
    const auto require_one = [&](const char* argument, const Tensor& given, const Shape& shape) {
      raw::require_alike(called, "x", x, argument, given);
      raw::require_shape(called, argument, given, shape);
    };
    if (added.defined()) require_one("added", added, x.shape());
    require_one("weight", weight, {x.size(-1)});
    if (bias.defined()) require_one("bias", bias, {x.size(-1)});
    if (!(epsilon >= 0)) fail(called, "epsilon ", epsilon, " given; 0 or more required");
  }
};

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, Site site) {
  const CallSite place(site);
  static_cast<void>(bias.shape());  // an Error where it is undefined
  return apply(Norm{epsilon, "layer_norm"}, site, x, Tensor(), weight, bias)[1];
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon, Site site) {
  return apply(Norm{epsilon, "rms_norm"}, site, x, Tensor(), weight, Tensor())[1];
}

SumAndNorm add_norm(
    const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias, double epsilon, Site site) {
  auto [sum, normed] = apply(Norm{epsilon, "add_norm"}, site, x, added, weight, bias);
  return {sum, normed};
}

}  // namespace whence

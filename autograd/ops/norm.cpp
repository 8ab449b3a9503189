// Normalisation of rows, of x or of a residual sum.    x, added:[... c]  weight w, bias b:[c]  ->  y:[... c]
//   s = x + added, or x if nothing is added
//   n = (s - mean) r,  r = 1 / sqrt(variance + epsilon),  y = n w + b        layer norm (Ba et al. 2016)
//   n = s r,  r = 1 / sqrt(mean(s^2) + epsilon),  y = n w                    without a bias (Zhang and Sennrich 2019)
//   dx = dadded = r (g - mean(g) - n mean(g n)) + the gradient of s itself,  g = dy w    (mean(g) for layer norm only)
//   dw = sum over rows of dy n        db = sum over rows of dy
#include "autograd/backward.h"
#include "autograd/check/checked.h"
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
    const Tensor c = centred ? s - mean(s, {-1}, true) : s;
    return c / sqrt(mean(square(c), {-1}, true) + epsilon) * weight;
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

// ---- samples ----

// Makes a sample of layer_norm, rms_norm or add_norm; for add_norm the result is the sums, then their norms.
CheckedSample sample(const char* name, const Shape& shape, bool added, bool biased, double epsilon) {
  Inputs inputs{draw::normal(shape)};
  if (added) inputs.push_back(draw::normal(shape));
  inputs.push_back(draw::normal({shape[-1]}));
  if (biased || added) inputs.push_back(biased ? draw::normal({shape[-1]}) : Tensor());
  const auto norm = [=](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return biased ? layer_norm(x, weight, bias, epsilon) : rms_norm(x, weight, epsilon);
  };
  if (!added) return {name, false, inputs, [=](const Inputs& in) { return norm(in[0], in[1], in.back()); }};
  return {name, false, inputs,
      [=](const Inputs& in) {
        const SumAndNorm y = add_norm(in[0], in[1], in[2], in[3], epsilon);
        return concat_along(-1, {y.sum, y.normed});
      },
      [=](const Inputs& in) {
        const Tensor sum = in[0] + in[1];
        return concat_along(-1, {sum, norm(sum, in[2], in[3])});
      }};
}

// A row of equal sums contains only the rounding error of its mean, and epsilon sets how much that is amplified: each
// derivative by another factor of 1 / sqrt(epsilon).
std::vector<CheckedSample> norm_samples(bool added, bool biased) {
  const double epsilon = biased ? 1e-3 : 1e-6;
  return {sample("rows", {4, 7}, added, biased, epsilon), sample("leading axes", {2, 3, 16}, added, biased, epsilon),
      sample("one row without an axis", {5}, added, biased, added ? 0.1 : 1e-3),
      sample("no rows", {0, 3}, added, biased, epsilon)};
}
std::vector<CheckedSample> samples_of_layer_norm() {
  std::vector<CheckedSample> all = norm_samples(false, true);
  all.push_back(sample("two channels", {3, 2}, false, true, 1e-5));
  return all;
}
std::vector<CheckedSample> samples_of_rms_norm() {
  std::vector<CheckedSample> all = norm_samples(false, false);
  all.push_back(sample("several runs of rows, blocks of channels", {130, 70}, false, false, 1e-6));
  all.push_back(sample("one channel", {3, 1}, false, false, 0.1));
  all.push_back(sample("a row of zeros", {2, 3}, false, false, 1e-2));
  all.back().inputs[0] = Tensor::zeros({2, 3}, DType::f64);
  return all;
}
std::vector<CheckedSample> samples_of_add_norm() {
  std::vector<CheckedSample> all = norm_samples(true, true);
  all.push_back(sample("without bias, several runs of rows", {130, 6}, true, false, 1e-5));
  for (const bool of_sum : {false, true}) {
    all.push_back(sample(of_sum ? "the sum alone" : "the norm alone", {3, 6}, true, false, 1e-5));
    all.back().run = [=](const Inputs& in) {
      const SumAndNorm y = add_norm(in[0], in[1], in[2], in[3], 1e-5);
      return of_sum ? y.sum : y.normed;
    };
    all.back().composed = [=](const Inputs& in) {
      const Tensor sum = in[0] + in[1];
      return of_sum ? sum : rms_norm(sum, in[2], 1e-5);
    };
  }
  return all;
}

std::vector<BadInput> bad_layer_norms() {
  return {refusal("layer_norm: weight is [4]; [3] required", layer_norm, draw::zeros(2, 3), draw::zeros(4),
              draw::zeros(3), 0),
      refusal(
          "layer_norm: bias is [4]; [3] required", layer_norm, draw::zeros(2, 3), draw::zeros(3), draw::zeros(4), 0),
      refusal("layer_norm: x is [2,0]; [... c] with c > 0 required", layer_norm, draw::zeros(2, 0), draw::zeros(0),
          draw::zeros(0), 0)};
}
std::vector<BadInput> bad_rms_norms() {
  return {refusal("rms_norm: epsilon -1 given; 0 or more required", rms_norm, draw::zeros(2, 3), draw::zeros(3), -1)};
}
std::vector<BadInput> bad_add_norms() {
  return {refusal("add_norm: added is [1,3]; [2,3] required", add_norm, draw::zeros(2, 3), draw::zeros(1, 3),
      draw::zeros(3), Tensor(), 0)};
}

const CheckedEntry checked[] = {{{"layer_norm", false, samples_of_layer_norm, bad_layer_norms}},
    {{"rms_norm", false, samples_of_rms_norm, bad_rms_norms}},
    {{"add_norm", false, samples_of_add_norm, bad_add_norms}}};

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

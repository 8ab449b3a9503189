// A residual stream's sum and its norm, in one kernel each way.    sum = x + added,  normed = norm(sum)
//   dx = dadded = dsum + the norm's gradient by sum
#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct AddNorm {
  static constexpr const char* name = "add_norm";
  static constexpr bool once = true;
  double epsilon;
  struct Saved {
    SavedTensor sum, weight, mean, rstd;
    bool centered = false;
  };

  std::array<Tensor, 2> forward(
      Saved& saved, const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias) const {
    check(x, added, weight, bias);
    const Tensor a = raw::contiguous(x), b = raw::contiguous(added), w = raw::contiguous(weight);
    const index_t rows = x.numel() / x.size(-1);
    const DType wide = compute_dtype(x.dtype());
    const auto made = [&](const Shape& shape, DType dtype) { return Tensor::empty(shape, dtype, x.device()); };
    const Tensor sum = made(x.shape(), x.dtype()), y = made(x.shape(), x.dtype()), rstd = made({rows}, wide);
    const Tensor mean = bias.defined() ? made({rows}, wide) : Tensor();
    kernels(x.device()).add_norm(a, b, w, bias.defined() ? raw::contiguous(bias) : bias, epsilon, sum, y, mean, rstd);
    saved.sum.output(sum);
    saved.weight = w;
    if (mean.defined()) saved.mean = mean;
    saved.rstd = rstd;
    saved.centered = mean.defined();
    return {sum, y};
  }

  Grads<4> backward(const Saved& saved, std::span<const Tensor, 2> dy, Needs<4>) const {
    const Tensor sum = saved.sum.get(), weight = saved.weight.get();
    const Tensor dsum = dy[0].defined() ? raw::contiguous(dy[0]) : dy[0];
    if (!dy[1].defined()) {
      const Tensor nothing = Tensor::zeros(weight.shape(), weight.dtype(), weight.device());
      return {dsum, dsum, nothing, nothing};
    }
    const auto made = [&](const Tensor& like) { return Tensor::empty(like.shape(), like.dtype(), like.device()); };
    const Tensor dx = made(sum), dweight = made(weight), dbias = saved.centered ? made(weight) : Tensor();
    kernels(sum.device())
        .add_norm_backward(sum, weight, saved.centered ? saved.mean.get() : Tensor(), saved.rstd.get(), dsum,
            raw::contiguous(dy[1]), dx, dweight, dbias);
    return {dx, dx, dweight, dbias};
  }

  void check(const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias) const {
    raw::require_floating(name, "x", x);
    if (x.rank() == 0 || x.size(-1) == 0) fail(name, "x is ", x.shape(), "; [... c] with c > 0 required");
    raw::require_alike(name, "x", x, "added", added);
    raw::require_shape(name, "added", added, x.shape());
    for (const Tensor* parameter : {&weight, &bias}) {
      if (parameter == &bias && !bias.defined()) continue;
      const char* argument = parameter == &weight ? "weight" : "bias";
      raw::require_alike(name, "x", x, argument, *parameter);
      raw::require_shape(name, argument, *parameter, {x.size(-1)});
    }
    if (!(epsilon >= 0)) fail(name, "epsilon ", epsilon, " given; 0 or more required");
  }
};

std::vector<CheckedSample> samples() {
  const auto both = [](double epsilon) {
    return [epsilon](const std::vector<Tensor>& in) {
      const SumAndNorm y = add_norm(in[0], in[1], in[2], in[3], epsilon);
      return concat_along(-1, {y.sum, y.normed});
    };
  };
  const auto norm = [](const std::vector<Tensor>& in) { return add_norm(in[0], in[1], in[2], in[3], 1e-5).normed; };
  const auto inputs = [](const Shape& shape, bool bias) {
    return std::vector<Tensor>{draw::normal(shape), draw::normal(shape), draw::normal({shape[-1]}),
        bias ? draw::normal({shape[-1]}) : Tensor()};
  };
  // In a row of equal sums the rounding of their mean is all there is, and epsilon says how large it comes out.
  return {{"rows", false, inputs({4, 7}, true), both(1e-5)}, {"without bias", false, inputs({4, 7}, false), both(1e-5)},
      {"leading axes", false, inputs({2, 3, 16}, true), both(1e-5)},
      {"one row without an axis", false, inputs({5}, true), both(0.1)},
      {"no rows", false, inputs({0, 3}, true), both(1e-5)}, {"the norm alone", false, inputs({3, 6}, false), norm}};
}

std::vector<BadInput> bad_inputs() {
  const auto call = [](const Shape& x, const Shape& added, const Shape& weight, double epsilon) {
    (void)add_norm(Tensor::zeros(x), Tensor::zeros(added), Tensor::zeros(weight), Tensor::zeros(weight), epsilon);
  };
  return {{"add_norm: added is [1,3]; [2,3] required",
              [=] {
                call({2, 3}, {1, 3}, {3}, 0);
              }},
      {"add_norm: weight is [4]; [3] required",
          [=] {
            call({2, 3}, {2, 3}, {4}, 0);
          }},
      {"add_norm: x is [2,0]; [... c] with c > 0 required",
          [=] {
            call({2, 0}, {2, 0}, {0}, 0);
          }},
      {"add_norm: epsilon -1 given; 0 or more required", [=] {
         call({2, 3}, {2, 3}, {3}, -1);
       }}};
}

// The sums of a row, and behind them (s - mean) / sqrt(variance + epsilon) weight + bias: sample 0.
Tensor reference(const std::vector<Tensor>& in) {
  std::vector<double> y;
  const index_t width = in[0].size(1);
  for (index_t row = 0; row < in[0].size(0); ++row) {
    const auto sum = [&](index_t k) { return in[0].at({row, k}) + in[1].at({row, k}); };
    double mean = 0, variance = 0;
    for (index_t k = 0; k < width; ++k) mean += sum(k) / static_cast<double>(width);
    for (index_t k = 0; k < width; ++k) variance += std::pow(sum(k) - mean, 2) / static_cast<double>(width);
    for (index_t k = 0; k < width; ++k) y.push_back(sum(k));
    for (index_t k = 0; k < width; ++k)
      y.push_back((sum(k) - mean) / std::sqrt(variance + 1e-5) * in[2].at({k}) + in[3].at({k}));
  }
  return Tensor::of(y, {in[0].size(0), 2 * width}, DType::f64);
}

const CheckedEntry checked({AddNorm::name, true, samples, bad_inputs, reference});

}  // namespace

SumAndNorm add_norm(
    const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias, double epsilon, Site at) {
  auto [sum, normed] = apply(AddNorm{epsilon}, at, x, added, weight, bias);
  return {sum, normed};
}

}  // namespace whence

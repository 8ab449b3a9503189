// A residual stream's sum and its norm, in one kernel each way.    sum = x + added,  normed = norm(sum)
//   dx = dadded = dsum + the norm's gradient by sum
#include "autograd/checked.h"
#include "autograd/joint.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct AddNorm {
  static constexpr const char* name = "add_norm";
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

  Grads<4> backward(const Saved& saved, const std::array<Tensor, 2>& dy, Needs<4>) const {
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

}  // namespace

SumAndNorm add_norm(
    const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias, double epsilon, Site at) {
  auto [sum, normed] = apply_joint<2>(AddNorm{epsilon}, at, x, added, weight, bias);
  return {sum, normed};
}

}  // namespace whence

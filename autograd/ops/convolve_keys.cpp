// Convolves every row of scores along its keys, heads being channels.  (DAPE V2, Zheng et al. 2024, arXiv:2410.04798)
//   x:[b c i j]  weight w:[o c 1 k]  bias:[o]  ->  y:[b o i j']
//   y[b,o,i,j]   = bias[o] + sum_c sum_{t<k} w[o,c,0,t] x[b,c,i,j+t-left]        x is zero outside
//   dx[b,c,i,j]  = sum_o sum_t w[o,c,0,t] dy[b,o,i,j-t+left]    a convolution too, taps flipped, left' = k - 1 - left
//   dw[o,c,0,t]  = sum_{b,i,j} dy[b,o,i,j] x[b,c,i,j+t-left]    dbias[o] = sum_{b,i,j} dy[b,o,i,j]
// The three sums are linear in each argument, and the derivatives of each are the other two. So second derivatives
// exist.
#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/convolution.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// Returns the convolution of `from` with the kernel, or with its adjoint.
Tensor convolve(const Convolution& at, const Tensor& from, const Tensor& weight, const Tensor& bias, bool adjoint) {
  const Tensor y = Tensor::like(from, {at.batch, at.outputs, at.rows, at.keys_out});
  const Tensor shift = bias.defined() ? raw::contiguous(bias) : bias;
  kernels(from).convolve_keys(at, raw::contiguous(from), raw::contiguous(weight), adjoint, shift, y);
  return y;
}

Convolution forward_of(const Tensor& x, const Tensor& weight, index_t left, index_t right) {
  const index_t k = weight.size(3);
  return {x.size(0), x.size(1), x.size(2), x.size(3), weight.size(0), x.size(3) + left + right - (k - 1), k, left};
}

// z[b,c,i,j] = sum_o sum_t w[o,c,0,t] g[b,o,i,j-t+left]: the formula of dx.
struct Adjoint {
  static constexpr const char* name = "convolve_keys_adjoint";
  static constexpr std::size_t factor = 1;
  index_t left, right;
  struct Saved {
    SavedTensor g, weight;
  };
  Tensor forward(Saved& saved, const Tensor& g, const Tensor& weight) const {
    saved.g = g;
    saved.weight = weight;
    const index_t k = weight.size(3), keys = g.size(3) - left - right + k - 1;
    return convolve(
        {g.size(0), g.size(1), g.size(2), g.size(3), weight.size(1), keys, k, k - 1 - left}, g, weight, Tensor(), true);
  }
  Grads<2> backward(const Saved& saved, const Tensor& dz, Needs<2> needs) const;
};

// dw[o,c,0,t] = sum_{b,i,j} g[b,o,i,j] x[b,c,i,j+t-left]
struct KernelGradient {
  static constexpr const char* name = "convolve_keys_kernel_gradient";
  static constexpr std::size_t factor = 1;
  index_t left, right, taps;
  struct Saved {
    SavedTensor g, x;
  };
  Tensor forward(Saved& saved, const Tensor& g, const Tensor& x) const {
    saved.g = g;
    saved.x = x;
    const Convolution at{x.size(0), x.size(1), x.size(2), x.size(3), g.size(1), g.size(3), taps, left};
    const Tensor dweight = Tensor::like(x, {at.outputs, at.channels, 1, taps});
    kernels(x).convolve_keys_weight(at, raw::contiguous(x), raw::contiguous(g), dweight);
    return dweight;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dz, Needs<2> needs) const;
};

struct ConvolveKeys {
  static constexpr const char* name = "convolve_keys";
  static constexpr std::size_t factor = 1;
  index_t left, right;
  struct Saved {
    SavedTensor x, weight;
  };
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    check(x, weight, bias);
    saved.x = x;
    saved.weight = weight;
    return convolve(forward_of(x, weight, left, right), x, weight, bias, false);
  }
  Grads<3> backward(const Saved& saved, const Tensor& dy, Needs<3> needs) const {
    const Tensor weight = saved.weight.get();
    Grads<3> grads;
    if (needs[0]) grads[0] = apply(Adjoint{left, right}, Site::current(), dy, weight);
    if (needs[1]) grads[1] = apply(KernelGradient{left, right, weight.size(3)}, Site::current(), dy, saved.x.get());
    if (needs[2]) grads[2] = sum(dy, {0, 2, 3});
    return grads;
  }

  void check(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    raw::require_floating(name, "x", x);
    raw::require_alike(name, "x", x, "weight", weight);
    if (x.rank() != 4) fail(name, "x is ", x.shape(), "; [b, c, i, j] required");
    if (weight.rank() != 4 || weight.size(1) != x.size(1) || weight.size(2) != 1 || weight.numel() == 0) {
      fail(name, "x is ", x.shape(), ", weight is ", weight.shape(), "; weight [o, ", x.size(1),
          ", 1, k] with o, k > 0 required");
    }
    if (bias.defined()) {
      raw::require_alike(name, "x", x, "bias", bias);
      raw::require_shape(name, "bias", bias, {weight.size(0)});
    }
    constexpr index_t most = index_t{1} << 59;
    if (left > most || right > most || left < -most || right < -most)
      fail(name, "left ", left, ", right ", right, " given; less than 2^59 keys on each side required");
    if (forward_of(x, weight, left, right).keys_out < 0) {
      fail(name, "x has ", x.size(3), " keys, left ", left, ", right ", right, ", weight spans ", weight.size(3),
          "; keys + left + right >= ", weight.size(3) - 1, " required; pad more");
    }
  }
};

Grads<2> Adjoint::backward(const Saved& saved, const Tensor& dz, Needs<2> needs) const {
  const Tensor weight = saved.weight.get();
  Grads<2> grads;
  if (needs[0]) grads[0] = apply(ConvolveKeys{left, right}, Site::current(), dz, weight, Tensor());
  if (needs[1]) grads[1] = apply(KernelGradient{left, right, weight.size(3)}, Site::current(), saved.g.get(), dz);
  return grads;
}

Grads<2> KernelGradient::backward(const Saved& saved, const Tensor& dz, Needs<2> needs) const {
  Grads<2> grads;
  if (needs[0]) grads[0] = apply(ConvolveKeys{left, right}, Site::current(), saved.x.get(), dz, Tensor());
  if (needs[1]) grads[1] = apply(Adjoint{left, right}, Site::current(), saved.g.get(), dz);
  return grads;
}

}  // namespace

Tensor convolve_keys(
    const Tensor& x, const Tensor& weight, const Tensor& bias, index_t left, index_t right, Site site) {
  return apply(ConvolveKeys{left, right}, site, x, weight, bias);
}

}  // namespace whence

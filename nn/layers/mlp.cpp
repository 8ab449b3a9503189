#include "nn/layers/mlp.h"

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "tensor/suggest.h"

namespace whence {

Activation activation_of(const std::string& name) {
  using enum Activation;
  return chosen("activation", name, {gelu, gelu_erf, relu, swiglu});
}

const char* to_string(Activation activation) {
  switch (activation) {
    case Activation::gelu: return "gelu";
    case Activation::gelu_erf: return "gelu_erf";
    case Activation::relu: return "relu";
    default: return "swiglu";
  }
}

MLP::MLP(const MLPOptions& options)
    : in_(options.dim, options.hidden, options.bias, options.in, options.bias_init),
      out_(options.hidden, options.dim, options.bias, options.out, options.bias_init),
      dropout_(options.dropout),
      activation_(options.activation) {
  child("in", in_);
  if (activation_ == Activation::swiglu) {
    gate_ = std::make_unique<Linear>(options.dim, options.hidden, options.bias, options.in, options.bias_init);
    child("gate", *gate_);
  }
  child("out", out_);
  child("dropout", dropout_);
}

Tensor MLP::operator()(const Tensor& x, const Pass& pass, Site site) const {
  const Scope scope(path());
  // On a GPU one op, which in 16 bits computes GELU within the first product.
  if (x.device().is_gpu() && activation_ == Activation::gelu && !dropout_.drops(pass) && !is_watched_under(path()))
    return linear_gelu_linear(x, in_.weight(), in_.bias(), out_.weight(), out_.bias(), site);
  Tensor hidden = in_(x, site);
  switch (activation_) {
    case Activation::gelu: hidden = gelu(hidden, site); break;
    case Activation::gelu_erf: hidden = gelu_erf(hidden, site); break;
    case Activation::relu: hidden = relu(hidden, site); break;
    case Activation::swiglu: hidden = silu((*gate_)(x, site), site) * hidden; break;
  }
  return out_(dropout_(probe("hidden", hidden, site), pass), site);
}

}  // namespace whence

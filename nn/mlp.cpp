// The feed-forward half of a transformer block.
#include "nn/mlp.h"

#include "autograd/ops.h"
#include "autograd/probe.h"

namespace whence {

Activation activation_of(const std::string& name) {
  for (const Activation activation : {Activation::gelu, Activation::gelu_erf, Activation::relu}) {
    if (name == to_string(activation)) return activation;
  }
  throw InputError(concat("activation: '", name, "' given; gelu, gelu_erf or relu required"));
}

const char* to_string(Activation activation) {
  switch (activation) {
    case Activation::gelu: return "gelu";
    case Activation::gelu_erf: return "gelu_erf";
    default: return "relu";
  }
}

static Tensor activate(Activation activation, const Tensor& x, Site at) {
  switch (activation) {
    case Activation::gelu: return gelu(x, at);
    case Activation::gelu_erf: return gelu_erf(x, at);
    default: return relu(x, at);
  }
}

MLP::MLP(const MLPOptions& options)
    : in_(options.dim, options.hidden, true, options.in),
      out_(options.hidden, options.dim, true, options.out),
      activation_(options.activation) {
  child("in", in_);
  child("out", out_);
}

Tensor MLP::operator()(const Tensor& x, Site at) const {
  const Scope scope(path());
  const Tensor hidden = probe("hidden", activate(activation_, in_(x, at), at), at);
  return out_(hidden, at);
}

}  // namespace whence

#include "nn/layers/layers.h"

#include <cmath>

#include "autograd/observer.h"
#include "tensor/error.h"
#include "tensor/random.h"

namespace whence {

Embedding::Embedding(index_t rows, index_t dim, Init init) {
  if (rows < 1 || dim < 1) fail("Embedding", rows, " rows of ", dim, " given; 1 or more of each required");
  weight_ = param("weight", {rows, dim}, init);
}

Tensor Embedding::operator()(const Tensor& index, Site site) const {
  const Scope scope(path());
  return take_rows(weight_, index, site);
}

Linear::Linear(index_t inputs, index_t outputs, bool bias, Init init, Init bias_init) {
  if (inputs < 1 || outputs < 1)
    fail("Linear", inputs, " inputs and ", outputs, " outputs given; 1 or more of each required");
  weight_ = param("weight", {outputs, inputs}, init);
  if (bias) bias_ = param("bias", {outputs}, bias_init, false);
}

Tensor Linear::operator()(const Tensor& x, Site site) const {
  const Scope scope(path());
  return linear(x, weight_, bias_, site);
}

Norm::Norm(index_t dim, NormKind kind, double epsilon) : kind_(kind), epsilon_(epsilon) {
  if (dim < 1) fail("Norm", "dim ", dim, " given; 1 or more required");
  if (!(epsilon > 0) || !std::isfinite(epsilon))
    fail("Norm", "epsilon ", epsilon, " given; a finite number above 0 required");
  weight_ = param("weight", {dim}, Init::ones(), false);
  if (kind == NormKind::layer) bias_ = param("bias", {dim}, Init::zeros(), false);
}

Tensor Norm::operator()(const Tensor& x, Site site) const {
  const Scope scope(path());
  return kind_ == NormKind::layer ? layer_norm(x, weight_, bias_, epsilon_, site)
                                  : rms_norm(x, weight_, epsilon_, site);
}

SumAndNorm Norm::of_sum(const Residual& stream, Site site) const {
  if (stream.added.defined() && stream.x.device().is_gpu()) {
    const Scope scope(path());
    return add_norm(stream.x, stream.added, weight_, bias_, epsilon_, site);
  }
  const Tensor sum = stream.sum(site);
  return {sum, (*this)(sum, site)};
}

Dropout::Dropout(double probability) : probability_(probability) {
  if (!(probability >= 0 && probability < 1))
    throw InputError("dropout: ", probability, " given; at least 0 and less than 1 required");
}

Tensor Dropout::operator()(const Tensor& x, const Pass& pass, Site site) const {
  if (!drops(pass)) return x;
  return dropout(x, probability_, Stream(pass.seed, path(), pass.step), {}, site);
}

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

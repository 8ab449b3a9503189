// Two linear layers with GELU (its tanh form) between them; a GPU fuses the GELU into the first product.
//   y = g W_out' + b_out,  g = gelu(h),  h = x W_in' + b_in        x:[... in]  W_in:[hidden in]  W_out:[out hidden]
//   dW_out = dy' g    db_out = sum over rows of dy    dh = gelu'(h) (dy W_out)
//   dW_in = dh' x     db_in = sum over rows of dh     dx = dh W_in
#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct LinearGeluLinear {
  static constexpr const char* name = "linear_gelu_linear";
  struct Saved {
    SavedTensor x, weight_in, bias_in, weight_out, bias_out, before,
        hidden;  // before: h, hidden: gelu(h), both as rows
  };

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight_in, const Tensor& bias_in,
      const Tensor& weight_out, const Tensor& bias_out) const {
    check(x, weight_in, bias_in, weight_out, bias_out);
    const Tensor rows = raw::reshape(x, as_rows(x.shape()));
    const Tensor before = Tensor::like(x, {rows.size(0), weight_in.size(0)});
    const Tensor hidden = Tensor::like(x, before.shape());
    kernels(x).matmul_gelu(rows, raw::transpose(weight_in), bias_in.defined() ? &bias_in : nullptr, before, hidden);
    saved.x = x;
    saved.weight_in = weight_in;
    saved.bias_in = bias_in;
    saved.weight_out = weight_out;
    saved.bias_out = bias_out;
    saved.before = before;
    saved.hidden = hidden;
    Shape shape = x.shape();
    shape[-1] = weight_out.size(0);
    const Tensor y = raw::matmul(hidden, raw::transpose(weight_out), 1, bias_out.defined() ? &bias_out : nullptr);
    return raw::reshape(y, shape);
  }

  Grads<5> backward(const Saved& saved, const Tensor& dy, Needs<5> needs) const {
    Kernels& on = kernels(dy);
    const Tensor rows = raw::reshape(dy, as_rows(dy.shape())), h = saved.before.get();
    Grads<5> grads;
    if (needs[3] && needs[4]) {
      grads[3] = Tensor::like(dy, saved.weight_out.peek().shape()), grads[4] = Tensor::like(dy, {rows.size(1)});
      on.matmul_row_sums(raw::transpose(rows), saved.hidden.get(), grads[3], grads[4]);
    } else if (needs[3]) {
      grads[3] = raw::matmul(raw::transpose(rows), saved.hidden.get());
    } else if (needs[4]) {
      grads[4] = raw::reduce(Reduction::sum, rows, {0}, false);
    }
    if (!needs[0] && !needs[1] && !needs[2]) return grads;
    const Tensor dh = Tensor::like(dy, h.shape()), x = saved.x.get();
    if (needs[2]) grads[2] = Tensor::like(dy, {h.size(1)});
    on.matmul_gelu_backward(rows, saved.weight_out.get(), h, dh, grads[2]);
    if (needs[1]) grads[1] = raw::matmul(raw::transpose(dh), raw::reshape(x, as_rows(x.shape())));
    if (needs[0]) grads[0] = raw::reshape(raw::matmul(dh, saved.weight_in.get()), x.shape());
    return grads;
  }

  static Tensor composed(const std::vector<Tensor>& in) {
    return linear(gelu(linear(in[0], in[1], in[2])), in[3], in[4]);
  }
  static std::array<Tensor, 5> inputs(const Saved& saved) {
    return {saved.x.get(), saved.weight_in.get(), saved.bias_in.get(), saved.weight_out.get(), saved.bias_out.get()};
  }

  static void check(const Tensor& x, const Tensor& weight_in, const Tensor& bias_in, const Tensor& weight_out,
      const Tensor& bias_out) {
    raw::require_floating(name, "x", x);
    raw::require_alike(name, "x", x, "weight_in", weight_in);
    raw::require_alike(name, "x", x, "weight_out", weight_out);
    if (x.rank() == 0 || weight_in.rank() != 2 || weight_out.rank() != 2 || x.size(-1) != weight_in.size(1) ||
        weight_in.size(0) != weight_out.size(1)) {
      fail(name, "x is ", x.shape(), ", weight_in is ", weight_in.shape(), ", weight_out is ", weight_out.shape(),
          "; x [... in], weight_in [hidden,in] and weight_out [out,hidden] required");
    }
    const auto check_bias = [&](const char* argument, const Tensor& bias, const Tensor& weight) {
      if (!bias.defined()) return;
      raw::require_alike(name, "x", x, argument, bias);
      raw::require_shape(name, argument, bias, {weight.size(0)});
    };
    check_bias("bias_in", bias_in, weight_in);
    check_bias("bias_out", bias_out, weight_out);
  }
};

}  // namespace

Tensor linear_gelu_linear(const Tensor& x, const Tensor& weight_in, const Tensor& bias_in, const Tensor& weight_out,
    const Tensor& bias_out, Site site) {
  return apply(LinearGeluLinear{}, site, x, weight_in, bias_in, weight_out, bias_out);
}

}  // namespace whence

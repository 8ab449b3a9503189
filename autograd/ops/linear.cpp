// The affine map of a layer.    y = x W' + b,  x:[... in]  W:[out in]  b:[out]  ->  y:[... out]
//   dx = dy W    dW = dy' x    db = sum over rows of dy        (leading axes folded into rows: no product is batched)
// And with GELU behind it.      y = gelu(h),  h = x W' + b       dh = gelu'(h) dy, then as above
// And a layer behind that.      y = W_out gelu(h) + b_out        dh = gelu'(h) (dy W_out)
#include <cmath>
#include <utility>

#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

void check(const char* name, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  raw::require_floating(name, "x", x);
  raw::require_alike(name, "x", x, "weight", weight);
  if (x.rank() == 0 || weight.rank() != 2 || x.size(-1) != weight.size(1)) {
    fail(
        name, to_text("x is ", x.shape(), ", weight is ", weight.shape(), "; x [... in] and weight [out,in] required"));
  }
  if (!bias.defined()) return;
  raw::require_alike(name, "x", x, "bias", bias);
  raw::require_shape(name, "bias", bias, {weight.size(0)});
}

// [rows, width], not yet written. 16-bit rows of which a GPU could read no two numbers at once, as those of GPT-2's 50257
// logits that begin at odd addresses, begin a multiple of 256 bytes apart: the result of `linear` is then a view, and
// not contiguous. Narrow ones would be mostly gap.
Tensor empty_rows(index_t rows, index_t width, const Tensor& x) {
  const bool apart = x.device().is_gpu() && size_of(x.dtype()) == 2 && width % 8 != 0 && width >= 128;
  const index_t begin = apart ? (width + 127) / 128 * 128 : width;
  return Tensor::empty({rows, begin}, x.dtype(), x.device()).view({rows, width}, {begin, 1});
}

// dW = dy' x and db = the sums of dy's columns, of rows [k out] and [k in], in one kernel where the device has it. Only
// dW asks for x.
template <class X> Grads<2> gradients_of_weight_and_bias(const Tensor& dy, const X& x, Needs<2> needs) {
  Grads<2> grads;
  if (needs[0] && needs[1] && !recording()) {
    const Tensor rows = x();
    grads[0] = Tensor::empty({dy.size(1), rows.size(1)}, dy.dtype(), dy.device());
    grads[1] = Tensor::empty({dy.size(1)}, dy.dtype(), dy.device());
    kernels(dy.device()).matmul_row_sums(raw::transpose(dy), rows, grads[0], grads[1]);
  } else {
    if (needs[0]) grads[0] = matmul(transpose(dy), x());
    if (needs[1]) grads[1] = sum(dy, {0});
  }
  return grads;
}

// y = x W' + b, row by row
Grads<3> linear_backward(const SavedTensor& x, const SavedTensor& weight, const Tensor& dy, Needs<3> needs) {
  const Tensor rows = reshape(dy, as_rows(dy.shape()));
  const auto x_rows = [&x] {
    const Tensor inputs = x.get();
    return reshape(inputs, as_rows(inputs.shape()));
  };
  Grads<3> grads;
  if (needs[0]) grads[0] = reshape(matmul(rows, weight.get()), x.peek().shape());
  Grads<2> of_layer = gradients_of_weight_and_bias(rows, x_rows, needs.last<2>());
  grads[1] = std::move(of_layer[0]), grads[2] = std::move(of_layer[1]);
  return grads;
}

struct Linear {
  static constexpr const char* name = "linear";
  struct Saved {
    SavedTensor x, weight;
  };

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    check(name, x, weight, bias);
    saved.x = x;
    saved.weight = weight;
    Shape shape = x.shape();
    shape[-1] = weight.size(0);
    // The bias is added by the product's own kernel while a tile is still in cache.
    const Tensor rows = raw::reshape(x, as_rows(x.shape())), y = empty_rows(rows.size(0), weight.size(0), x);
    kernels(x.device()).matmul(rows, raw::transpose(weight), bias.defined() ? &bias : nullptr, 1, y);
    return raw::reshape(y, shape);
  }

  Grads<3> backward(const Saved& saved, const Tensor& dy, Needs<3> needs) const {
    return linear_backward(saved.x, saved.weight, dy, needs);
  }

  static Samples<Linear> samples() {
    return {{"rows", {}, {draw::normal({3, 4}), draw::normal({5, 4}), draw::normal({5})}},
        {"leading axes", {}, {draw::normal({2, 3, 4}), draw::normal({2, 4}), draw::normal({2})}},
        {"no bias", {}, {draw::normal({3, 4}), draw::normal({1, 4}), Tensor()}},
        {"one row without an axis", {}, {draw::normal({4}), draw::normal({3, 4}), draw::normal({3})}},
        {"no rows", {}, {draw::normal({0, 4}), draw::normal({3, 4}), draw::normal({3})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"linear: x is [2,3], weight is [3,4]; x [... in] and weight [out,in] required",
                [] {
                  (void)linear(Tensor::zeros({2, 3}), Tensor::zeros({3, 4}), {});
                }},
        {"linear: bias is [3]; [4] required",
            [] {
              (void)linear(Tensor::zeros({2, 3}), Tensor::zeros({4, 3}), Tensor::zeros({3}));
            }},
        {"linear: x is f32, weight is f64; equal dtypes required; convert with cast", [] {
           (void)linear(Tensor::zeros({2, 3}), Tensor::zeros({4, 3}, DType::f64), {});
         }}};
  }
  static Tensor reference(const std::vector<Tensor>& in) {
    std::vector<double> y;
    for (index_t row = 0; row < in[0].size(0); ++row) {
      for (index_t out = 0; out < in[1].size(0); ++out) {
        double total = in[2].at({out});
        for (index_t k = 0; k < in[0].size(1); ++k) total += in[0].at({row, k}) * in[1].at({out, k});
        y.push_back(total);
      }
    }
    return Tensor::of(y, {in[0].size(0), in[1].size(0)}, DType::f64);
  }
};

struct LinearGelu {
  static constexpr const char* name = "linear_gelu";
  struct Saved {
    SavedTensor x, weight, bias, before;  // before: h
  };

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    check(name, x, weight, bias);
    Shape shape = x.shape();
    shape[-1] = weight.size(0);
    const Tensor before = Tensor::empty(as_rows(shape), x.dtype(), x.device());
    const Tensor y = Tensor::empty(before.shape(), x.dtype(), x.device());
    kernels(x.device())
        .matmul_gelu(
            raw::reshape(x, as_rows(x.shape())), raw::transpose(weight), bias.defined() ? &bias : nullptr, before, y);
    saved.x = x;
    saved.weight = weight;
    if (bias.defined()) saved.bias = bias;
    saved.before = raw::reshape(before, shape);
    return raw::reshape(y, shape);
  }

  Grads<3> backward(const Saved& saved, const Tensor& dy, Needs<3> needs) const {
    // y = gelu(h); the saved h has no history, so a backward that is itself recorded computes it again from what has
    const Tensor h = recording()
                         ? linear(saved.x.get(), saved.weight.get(), saved.bias.defined() ? saved.bias.get() : Tensor())
                         : saved.before.get();
    return linear_backward(saved.x, saved.weight, unary_backward(functions::Gelu{}, h, dy), needs);
  }

  static Samples<LinearGelu> samples() {
    return {{"rows", {}, {draw::normal({3, 4}), draw::normal({5, 4}), draw::normal({5})}},
        {"leading axes, a width of 8", {}, {draw::normal({2, 3, 4}), draw::normal({8, 4}), draw::normal({8})}},
        {"no bias", {}, {draw::normal({3, 4}), draw::normal({8, 4}), Tensor()}},
        // Positive, so that y is not so small beside h that the rounding of h is all there is.
        {"one row without an axis", {}, {draw::uniform({4}, 0.1, 1), draw::uniform({3, 4}, 0.1, 1), draw::normal({3})}},
        {"no rows", {}, {draw::normal({0, 4}), draw::normal({3, 4}), draw::normal({3})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"linear_gelu: x is [2,3], weight is [3,4]; x [... in] and weight [out,in] required", [] {
               (void)linear_gelu(Tensor::zeros({2, 3}), Tensor::zeros({3, 4}), {});
             }}};
  }
};

struct LinearGeluLinear {
  static constexpr const char* name = "linear_gelu_linear";
  struct Saved {
    SavedTensor x, weight_in, bias_in, weight_out, before, hidden;  // before: h, hidden: gelu(h), both in rows
  };

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight_in, const Tensor& bias_in,
      const Tensor& weight_out, const Tensor& bias_out) const {
    check(x, weight_in, bias_in, weight_out, bias_out);
    const Tensor rows = raw::reshape(x, as_rows(x.shape()));
    const Tensor before = Tensor::empty({rows.size(0), weight_in.size(0)}, x.dtype(), x.device());
    const Tensor hidden = Tensor::empty(before.shape(), x.dtype(), x.device());
    const Tensor y = empty_rows(rows.size(0), weight_out.size(0), x);
    Kernels& on = kernels(x.device());
    on.matmul_gelu(rows, raw::transpose(weight_in), bias_in.defined() ? &bias_in : nullptr, before, hidden);
    on.matmul(hidden, raw::transpose(weight_out), bias_out.defined() ? &bias_out : nullptr, 1, y);
    saved.x = x;
    saved.weight_in = weight_in;
    if (bias_in.defined()) saved.bias_in = bias_in;
    saved.weight_out = weight_out;
    saved.before = before;
    saved.hidden = hidden;
    Shape shape = x.shape();
    shape[-1] = weight_out.size(0);
    return raw::reshape(y, shape);
  }

  Grads<5> backward(const Saved& saved, const Tensor& dy, Needs<5> needs) const {
    const Tensor rows = reshape(dy, as_rows(dy.shape()));
    const bool records = recording();  // then h, as in LinearGelu, and gelu(h) are computed again
    const Tensor h = records ? before_again(saved) : saved.before.get();
    Grads<5> grads;
    Grads<2> of_out = gradients_of_weight_and_bias(
        rows, [&] { return records ? gelu(h) : saved.hidden.get(); }, needs.last<2>());
    grads[3] = std::move(of_out[0]), grads[4] = std::move(of_out[1]);
    if (!needs[0] && !needs[1] && !needs[2]) return grads;
    Tensor dh;
    if (records) {
      dh = unary_backward(functions::Gelu{}, h, matmul(rows, saved.weight_out.get()));
    } else {
      dh = Tensor::empty(h.shape(), h.dtype(), h.device());
      if (needs[2]) grads[2] = Tensor::empty({h.size(1)}, h.dtype(), h.device());
      kernels(h.device()).matmul_gelu_backward(rows, saved.weight_out.get(), h, dh, grads[2]);
    }
    const bool of_in_needs[] = {needs[0], needs[1], needs[2] && records};
    Grads<3> of_in = linear_backward(saved.x, saved.weight_in, dh, of_in_needs);
    grads[0] = std::move(of_in[0]), grads[1] = std::move(of_in[1]);
    if (records) grads[2] = std::move(of_in[2]);
    return grads;
  }

  static Tensor before_again(const Saved& saved) {
    const Tensor h =
        linear(saved.x.get(), saved.weight_in.get(), saved.bias_in.defined() ? saved.bias_in.get() : Tensor());
    return reshape(h, as_rows(h.shape()));
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

  static Samples<LinearGeluLinear> samples() {
    const Shape in{8, 4}, out{3, 8};
    const auto sample = [&](const char* called, const Tensor& x, bool with_in, bool with_out) {
      const Tensor bias_in = with_in ? draw::normal({8}) : Tensor(), bias_out = with_out ? draw::normal({3}) : Tensor();
      return Sample<LinearGeluLinear>{called, {}, {x, draw::normal(in), bias_in, draw::normal(out), bias_out}};
    };
    return {sample("rows", draw::normal({3, 4}), true, true),
        sample("leading axes", draw::normal({2, 3, 4}), true, true),
        sample("no biases", draw::normal({3, 4}), false, false),
        sample("a bias within", draw::normal({3, 4}), true, false),
        sample("a bias behind", draw::normal({3, 4}), false, true),
        sample("one row without an axis", draw::normal({4}), true, true),
        sample("no rows", draw::normal({0, 4}), true, true)};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"linear_gelu_linear: x is [2,3], weight_in is [4,3], weight_out is [3,5]; x [... in], weight_in "
             "[hidden,in] and weight_out [out,hidden] required",
                [] {
                  (void)linear_gelu_linear(Tensor::zeros({2, 3}), Tensor::zeros({4, 3}), {}, Tensor::zeros({3, 5}), {});
                }},
        {"linear_gelu_linear: bias_out is [4]; [3] required", [] {
           (void)linear_gelu_linear(Tensor::zeros({2, 3}), Tensor::zeros({4, 3}), Tensor::zeros({4}),
               Tensor::zeros({3, 4}), Tensor::zeros({4}));
         }}};
  }
  static Tensor reference(const std::vector<Tensor>& in) {
    const index_t rows = in[0].size(0), width = in[1].size(0);
    std::vector<double> y;
    for (index_t row = 0; row < rows; ++row) {
      std::vector<double> hidden;
      for (index_t n = 0; n < width; ++n) {
        double h = in[2].at({n});
        for (index_t k = 0; k < in[0].size(1); ++k) h += in[0].at({row, k}) * in[1].at({n, k});
        hidden.push_back(h / 2 * (1 + std::tanh(0.7978845608028654 * (h + 0.044715 * h * h * h))));
      }
      for (index_t out = 0; out < in[3].size(0); ++out) {
        double total = in[4].at({out});
        for (index_t n = 0; n < width; ++n) total += hidden[static_cast<std::size_t>(n)] * in[3].at({out, n});
        y.push_back(total);
      }
    }
    return Tensor::of(y, {rows, in[3].size(0)}, DType::f64);
  }
};

const Checked<Linear> checked;
const Checked<LinearGelu> checked_gelu;
const Checked<LinearGeluLinear> checked_gelu_linear;

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Site at) {
  return apply(Linear{}, at, x, weight, bias);
}

Tensor linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias, Site at) {
  return apply(LinearGelu{}, at, x, weight, bias);
}

Tensor linear_gelu_linear(const Tensor& x, const Tensor& weight_in, const Tensor& bias_in, const Tensor& weight_out,
    const Tensor& bias_out, Site at) {
  return apply(LinearGeluLinear{}, at, x, weight_in, bias_in, weight_out, bias_out);
}

}  // namespace whence

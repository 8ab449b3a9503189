// Root mean square normalisation.  (Zhang and Sennrich 2019)    x:[... c]  weight w:[c]  ->  y:[... c]
//   n = x r,  r = 1 / sqrt(mean(x^2) + epsilon)        y = n w
//   dx = r (g - n mean(g n)),  g = dy w        dw = sum over rows of dy n
#include "autograd/checked.h"
#include "autograd/ops.h"
#include "autograd/ops/index.h"
#include "tensor/launch.h"

namespace whence {
namespace {

constexpr index_t lanes = 16;  // sums run side by side, so that they are vector code and their rounding stays small

// The sum of f(k) over [0, width), in an order that is a function of width alone.
template <class C, class F>
WHENCE_HD C sum_of_row(index_t width, const F& f) {
  C sums[lanes] = {}, total = C(0);
  index_t k = 0;
  for (; k + lanes <= width; k += lanes) {
    for (index_t lane = 0; lane < lanes; ++lane) sums[lane] += f(k + lane);
  }
  for (; k < width; ++k) total += f(k);
  for (index_t lane = 0; lane < lanes; ++lane) total += sums[lane];
  return total;
}

template <class T>
struct NormForward {
  using C = compute_t<T>;
  const T *x, *weight;
  T* y;
  C* rstd;
  index_t width;
  double epsilon;
  WHENCE_HD void operator()(index_t row) const {
    const T* __restrict from = x + row * width;
    const C squares = sum_of_row<C>(width, [=](index_t k) { return C(from[k]) * C(from[k]); });
    const C r = C(1) / math::sqrt(squares / C(static_cast<double>(width)) + C(epsilon));
    T* __restrict to = y + row * width;
    for (index_t k = 0; k < width; ++k) to[k] = static_cast<T>(C(from[k]) * r * C(weight[k]));
    rstd[row] = r;
  }
};

template <class T>
struct NormBackward {
  using C = compute_t<T>;
  const T *x, *weight, *dy;
  const C* rstd;
  T* dx;
  index_t width;
  WHENCE_HD void operator()(index_t row) const {
    const T* __restrict from = x + row * width, * __restrict g = dy + row * width, * __restrict w = weight;
    const C r = rstd[row];
    // mean(g n) n = x r^2 mean(g x)
    const C product = sum_of_row<C>(width, [=](index_t k) { return C(g[k]) * C(w[k]) * C(from[k]); });
    const C share = product * r * r / C(static_cast<double>(width));
    T* __restrict to = dx + row * width;
    for (index_t k = 0; k < width; ++k) to[k] = static_cast<T>(r * (C(g[k]) * C(w[k]) - C(from[k]) * share));
  }
};

// dw over one run of rows and one block of channels. How many runs there are depends on the shape alone, and they are added in order.
constexpr index_t channel_block = 64, rows_per_run = 64;
template <class T>
struct WeightGradient {
  using C = compute_t<T>;
  const T *x, *dy;
  const C* rstd;
  C* partial;  // [runs, width]
  index_t rows, width, blocks;
  WHENCE_HD void operator()(index_t part) const {
    const index_t run = part / blocks, first = part % blocks * channel_block;
    const index_t count = width - first < channel_block ? width - first : channel_block;
    const index_t end = (run + 1) * rows_per_run < rows ? (run + 1) * rows_per_run : rows;
    C* __restrict sum = partial + run * width + first;
    for (index_t k = 0; k < count; ++k) sum[k] = C(0);
    for (index_t row = run * rows_per_run; row < end; ++row) {
      const T* __restrict from = x + row * width + first, * __restrict g = dy + row * width + first;
      const C r = rstd[row];
      for (index_t k = 0; k < count; ++k) sum[k] += C(g[k]) * (C(from[k]) * r);
    }
  }
};

struct RmsNorm {
  static constexpr const char* name = "rms_norm";
  static constexpr bool once = true;
  double epsilon;
  struct Saved {
    SavedTensor x, weight, rstd;
  };

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight) const {
    check(x, weight);
    const Tensor from = raw::contiguous(x), w = raw::contiguous(weight);
    const index_t width = x.size(-1), rows = x.numel() / width;
    const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    // In compute precision: backward sees the number that forward multiplied by, not its rounding to 16 bit.
    const Tensor rstd = Tensor::empty({rows}, detail::sum_dtype(x.dtype()), x.device());
    visit_floating(name, x.dtype(), [&]<class T>(Type<T>) {
      launch(name, x.device(), rows, NormForward<T>{from.data<T>(), w.data<T>(), y.data<T>(), rstd.data<compute_t<T>>(), width, epsilon},
             2 * width);
    });
    saved.x = from;
    saved.weight = w;
    saved.rstd = rstd;
    return y;
  }

  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2> needs) const {
    const Tensor x = saved.x.get(), w = saved.weight.get(), rstd = saved.rstd.get(), g = raw::contiguous(dy);
    const index_t width = x.size(-1), rows = x.numel() / width;
    Grads<2> grads;
    visit_floating(name, x.dtype(), [&]<class T>(Type<T>) {
      using C = compute_t<T>;
      if (needs[0]) {
        grads[0] = Tensor::empty(x.shape(), x.dtype(), x.device());
        launch(name, x.device(), rows, NormBackward<T>{x.data<T>(), w.data<T>(), g.data<T>(), rstd.data<C>(), grads[0].data<T>(), width},
               2 * width);
      }
      if (needs[1]) {
        const index_t runs = (rows + rows_per_run - 1) / rows_per_run, blocks = (width + channel_block - 1) / channel_block;
        const Tensor partial = Tensor::empty({runs, width}, rstd.dtype(), x.device());
        launch(name, x.device(), runs * blocks,
               WeightGradient<T>{x.data<T>(), g.data<T>(), rstd.data<C>(), partial.data<C>(), rows, width, blocks}, 8192);
        const Tensor total = raw::reduce(Reduction::sum, partial, {0}, false);
        grads[1] = total.dtype() == x.dtype() ? total : raw::cast(total, x.dtype());
      }
    });
    return grads;
  }

  void check(const Tensor& x, const Tensor& weight) const {
    raw::require_floating(name, "x", x);
    if (x.rank() == 0 || x.size(-1) == 0) fail(name, concat("x is ", x.shape(), "; [... c] with c > 0 required"));
    raw::require_same_dtype(name, x, weight);
    raw::require_same_device(name, x, weight);
    raw::require_shape(name, "weight", weight, {x.size(-1)});
    if (!(epsilon >= 0)) fail(name, concat("epsilon ", epsilon, " given; 0 or more required"));
  }

  static Samples<RmsNorm> samples() {
    return {{"rows", {1e-6}, {draw::normal({4, 7}), draw::normal({7})}},
            {"leading axes", {1e-6}, {draw::normal({2, 3, 16}), draw::normal({16})}},
            {"several runs of rows, blocks of channels", {1e-6}, {draw::normal({130, 70}), draw::normal({70})}},
            {"one row without an axis", {1e-3}, {draw::normal({5}), draw::normal({5})}},
            {"one channel", {0.1}, {draw::normal({3, 1}), draw::normal({1})}},
            {"a row of zeros", {1e-2}, {Tensor::zeros({2, 3}, DType::f64), draw::normal({3})}},
            {"no rows", {1e-6}, {draw::normal({0, 3}), draw::normal({3})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"rms_norm: weight is [4]; [3] required",
             [] {
               (void)rms_norm(Tensor::zeros({2, 3}), Tensor::zeros({4}));
             }},
            {"rms_norm: x is [2,0]; [... c] with c > 0 required",
             [] {
               (void)rms_norm(Tensor::zeros({2, 0}), Tensor::zeros({0}));
             }},
            {"rms_norm: epsilon -1 given; 0 or more required", [] {
               (void)rms_norm(Tensor::zeros({2, 3}), Tensor::zeros({3}), -1);
             }}};
  }
  static Tensor reference(const std::vector<Tensor>& in) {
    std::vector<double> y;
    const index_t width = in[0].size(1);
    for (index_t row = 0; row < in[0].size(0); ++row) {
      double squares = 0;
      for (index_t k = 0; k < width; ++k) squares += std::pow(in[0].at({row, k}), 2) / static_cast<double>(width);
      for (index_t k = 0; k < width; ++k) y.push_back(in[0].at({row, k}) / std::sqrt(squares + 1e-6) * in[1].at({k}));
    }
    return Tensor::of(y, in[0].shape(), DType::f64);
  }
};

const Checked<RmsNorm> checked;

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon, Site at) { return apply(RmsNorm{epsilon}, at, x, weight); }

}  // namespace whence

// Cross-entropy of rows of logits.    logits x:[... v]  target:[...]  ->  scalar y
//   y = (1/n) sum over the n rows that are not ignored of  log(sum_v e^{x_v}) - x_target        0 when n = 0
//   dx_v = (dy / n) (e^{x_v} / sum_w e^{x_w} - [v = target])        0 in ignored rows
// Kept: the logits and each row's log-sum-exp, not the softmax.
#include "autograd/checked.h"
#include "autograd/ops.h"
#include "autograd/ops/index.h"
#include "tensor/launch.h"
#include "tensor/math.h"

namespace whence {
namespace {

constexpr int lanes = 8;  // partial sums, so that the compiler may add side by side and the order is still ours

template <class C, class T>
WHENCE_HD C log_sum_exp(const T* x, index_t width) {
  // log sum e^x = top + log sum e^{x - top}: no power overflows
  C largest = x[0];
  for (index_t v = 1; v < width; ++v) largest = C(x[v]) > largest ? C(x[v]) : largest;
  C sums[lanes] = {};
  index_t v = 0;
  for (; v + lanes <= width; v += lanes) {
    for (int lane = 0; lane < lanes; ++lane) sums[lane] += math::exp(C(x[v + lane]) - largest);
  }
  for (; v < width; ++v) sums[0] += math::exp(C(x[v]) - largest);
  C total(0);
  for (int lane = 0; lane < lanes; ++lane) total += sums[lane];
  return largest + math::log(total);
}

template <class T>
struct LossRow {
  const T* logits;
  const index_t* target;
  compute_t<T>*norm, *loss;  // log-sum-exp and loss of each row
  index_t width, ignored;
  WHENCE_HD void operator()(index_t row) const {
    using C = compute_t<T>;
    const T* x = logits + row * width;
    const bool counts = target[row] != ignored;
    norm[row] = counts ? log_sum_exp<C>(x, width) : C(0);
    loss[row] = counts ? norm[row] - C(x[target[row]]) : C(0);
  }
};

template <class T>
struct GradientRow {
  const T *logits, *dy;
  const index_t* target;
  const compute_t<T>* norm;
  T* dx;
  index_t width, ignored;
  compute_t<T> share;
  WHENCE_HD void operator()(index_t row) const {
    using C = compute_t<T>;
    const T* x = logits + row * width;
    T* out = dx + row * width;
    const bool counts = target[row] != ignored;
    const C g = counts ? C(*dy) * share : C(0), shift = norm[row];
    if (!counts) {
      for (index_t v = 0; v < width; ++v) out[v] = static_cast<T>(C(0));
      return;
    }
    // e^{x - norm} is the softmax, recomputed; the target's own entry is p - 1, formed before the rounding to T
    for (index_t v = 0; v < width; ++v) out[v] = static_cast<T>(math::exp(C(x[v]) - shift) * g);
    const index_t t = target[row];
    out[t] = static_cast<T>((math::exp(C(x[t]) - shift) - C(1)) * g);
  }
};

struct CrossEntropy {
  static constexpr const char* name = "cross_entropy";
  static constexpr bool once = true;
  index_t ignored;
  struct Saved {
    SavedTensor logits, target, norm;
    double share = 0;  // 1/n
  };

  Tensor forward(Saved& saved, const Tensor& logits, const Tensor& target) const {
    check(logits, target);
    const index_t width = logits.size(-1), rows = target.numel();
    const Tensor x = raw::contiguous(logits);
    const Tensor t = detail::checked_index(name, "target", target, width, ignored);
    const index_t counted = count(raw::to_device(t, Device::cpu()));
    const DType wide = detail::sum_dtype(x.dtype());
    const Tensor norm = Tensor::empty({rows}, wide, x.device()), loss = Tensor::empty({rows}, wide, x.device());
    visit_floating(name, x.dtype(), [&]<class T>(Type<T>) {
      using C = compute_t<T>;
      launch(name, x.device(), rows, LossRow<T>{x.data<T>(), t.data<index_t>(), norm.data<C>(), loss.data<C>(), width, ignored}, 4 * width);
    });
    saved.logits = x;
    saved.target = t;
    saved.norm = norm;
    saved.share = counted ? 1 / static_cast<double>(counted) : 0;
    // Rows in any order, their mean by the fixed tree of reduce: the same bits for any number of threads.
    const Tensor mean = raw::unary(Unary::affine, raw::reduce(Reduction::sum, loss, {}, false), {saved.share, 0});
    return mean.dtype() == x.dtype() ? mean : raw::cast(mean, x.dtype());
  }

  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2>) const {
    const Tensor x = saved.logits.get(), t = saved.target.get(), norm = saved.norm.get(), g = raw::contiguous(dy);
    const Tensor dx = Tensor::empty(x.shape(), x.dtype(), x.device());
    const index_t width = x.size(-1);
    visit_floating(name, x.dtype(), [&]<class T>(Type<T>) {
      using C = compute_t<T>;
      launch(name, x.device(), t.numel(),
             GradientRow<T>{x.data<T>(), g.data<T>(), t.data<index_t>(), norm.data<C>(), dx.data<T>(), width, ignored,
                            static_cast<C>(saved.share)},
             4 * width);
    });
    return {dx, Tensor()};
  }

  index_t count(const Tensor& target) const {
    const index_t* values = target.data<index_t>();
    index_t counted = 0;
    for (index_t i = 0; i < target.numel(); ++i) counted += values[i] != ignored;
    return counted;
  }

  static void check(const Tensor& logits, const Tensor& target) {
    raw::require_floating(name, "logits", logits);
    raw::require_same_device(name, logits, target);
    bool agree = logits.rank() == target.rank() + 1 && logits.size(-1) > 0;
    for (int axis = 0; agree && axis < target.rank(); ++axis) agree = logits.size(axis) == target.size(axis);
    if (!agree)
      fail(name, concat("logits are ", logits.shape(), ", target is ", target.shape(), "; [... v] and [...] required, nothing broadcasts"));
  }

  static Samples<CrossEntropy> samples() {
    return {{"rows", {-1}, {draw::normal({4, 11}), draw::index({4}, 11)}},
            {"leading axes", {-1}, {draw::normal({2, 3, 5}), draw::index({2, 3}, 5)}},
            {"some ignored", {-100}, {draw::normal({3, 17}), Tensor::of({-100, 16, 0}, {3}, DType::i32)}},
            {"all ignored", {-1}, {draw::normal({2, 3}), Tensor::full({2}, -1, DType::i64)}},
            {"one row without an axis", {-1}, {draw::normal({5}), draw::index({}, 5)}},
            {"no rows", {-1}, {draw::normal({0, 3}), draw::index({0}, 3)}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"cross_entropy: target at [1] is 3; a value in [0, 3) required, or -1 to ignore it",
             [] {
               (void)cross_entropy(Tensor::zeros({2, 3}), Tensor::of({0, 3}, {2}, DType::i64));
             }},
            {"cross_entropy: logits are [2,3], target is [1]; [... v] and [...] required, nothing broadcasts", [] {
               (void)cross_entropy(Tensor::zeros({2, 3}), Tensor::of({0}, {1}, DType::i64));
             }}};
  }
  static Tensor reference(const std::vector<Tensor>& in) {
    double total = 0;
    for (index_t row = 0; row < in[0].size(0); ++row) {
      double sum = 0;
      for (index_t v = 0; v < in[0].size(1); ++v) sum += std::exp(in[0].at({row, v}));
      total += std::log(sum) - in[0].at({row, static_cast<index_t>(in[1].at({row}))});
    }
    return Tensor::of({total / static_cast<double>(in[0].size(0))}, {}, DType::f64);
  }
};

const Checked<CrossEntropy> checked;

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, index_t ignored, Site at) {
  return apply(CrossEntropy{ignored}, at, logits, target);
}

}  // namespace whence

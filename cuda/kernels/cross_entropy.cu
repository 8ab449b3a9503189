// Cross-entropy of rows of logits with their targets: log(sum_v e^{x_v}) - x_target, and its backward
// e^{x_v - log sum} - [v = target].
// One pass over the vocabulary in each direction: the largest logit and the sum of powers are found together.
#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/power.h"
#include "cuda/vocabulary/rows.h"

namespace whence::gpu {
namespace {

template <class T, class P> struct CrossEntropy {
  static constexpr const char* name = "cross_entropy";
  static constexpr int threads = P::threads;
  using C = compute_t<T>;
  static constexpr std::size_t shared_bytes = P::template reduce_bytes<PowerSum<C>>;
  Global<const T> logits;
  Global<const index_t> target;
  Global<C> norm, loss;  // log-sum-exp and loss of each row; 0 in ignored rows
  index_t rows, width, ignored;

  WHENCE_HD void operator()(Thread& t) const {
    const Team<P> team(t);
    const index_t row = team.row();
    if (row >= rows) return;
    const index_t right = target[row];
    if (right == ignored) {
      if (team.member() == 0) store(norm, row, Number<C>(C(0))), store(loss, row, Number<C>(C(0)));
      return;
    }
    const RowPart<T, P> values(logits, row * width);
    PowerSum<C> sum = empty_power_sum<C>();
    team.each_pack(width, [&](int p, index_t j) { add_pack(sum, values(p, j), ~0u); });
    sum = team.reduce(sum, JoinPowerSums<C>{});
    if (team.member() != 0) return;
    const Number<C> log_sum = sum.first + math::log(sum.second);
    store(norm, row, log_sum);
    store(loss, row, Number<C>(log_sum - load<C>(logits, row * width + right)));
  }
};

template <class T, class P> struct CrossEntropyBackward {
  static constexpr const char* name = "cross_entropy_backward";
  static constexpr int threads = P::threads;
  using C = compute_t<T>;
  static constexpr std::size_t shared_bytes = 0;
  Global<const T> logits;
  Global<const index_t> target;
  Global<const C> norm, dy;  // dy has one element
  Global<T> dx;
  index_t rows, width, ignored;
  C share;

  WHENCE_HD void operator()(Thread& t) const {
    const Team<P> team(t);
    const index_t row = team.row();
    if (row >= rows) return;
    const RowPart<T, P> values(logits, row * width);
    const index_t right = target[row];
    const bool counts = right != ignored;
    const Number<C> shift = load<C>(norm, row), gradient = load<C>(dy, 0) * Number<C>(share), zero = Number<C>(C(0));
    team.each_pack(width, [&](int p, index_t j) {
      auto pack = values(p, j);
      for (int k = 0; k < P::pack; ++k) {
        // e^{x - norm} is the softmax, recomputed; the target's own entry is p - 1, formed before the rounding to T
        const Number<C> power = math::exp(pack.of[k] - shift);
        const Number<C> slope = j + k == right ? Number<C>(power - Number<C>(C(1))) : power;
        pack.of[k] = counts ? Number<C>(slope * gradient) : zero;
      }
      store_numbers(dx, row * width + j, pack);
    });
  }
};

}  // namespace
}  // namespace whence::gpu

namespace whence {

using namespace gpu;

void CudaKernels::cross_entropy(
    const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm, const Tensor& loss) {
  if (logits.numel() == 0) return;
  const index_t width = logits.size(-1), rows = logits.numel() / width;
  visit_floating("cross_entropy", logits.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    with_passing_part<T, 512>(width, rows_fit_packs<T>(width, {&logits}), [&]<class P>(P) {
      using Body = CrossEntropy<T, P>;
      const Body body{global<const T>(logits), global<const index_t>(target), global<C>(norm), global<C>(loss), rows,
          width, ignored};
      launch_kernel(body, {P::blocks(rows), Body::shared_bytes});
    });
  });
}

void CudaKernels::cross_entropy_backward(const Tensor& logits, const Tensor& target, index_t ignored,
    const Tensor& norm, const Tensor& dy, double share, const Tensor& dx) {
  if (logits.numel() == 0) return;
  const index_t width = logits.size(-1), rows = logits.numel() / width;
  visit_floating("cross_entropy_backward", logits.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    with_passing_part<T, 512>(width, rows_fit_packs<T>(width, {&logits, &dx}), [&]<class P>(P) {
      using Body = CrossEntropyBackward<T, P>;
      const Body body{global<const T>(logits), global<const index_t>(target), global<const C>(norm),
          global<const C>(dy), global<T>(dx), rows, width, ignored, static_cast<C>(share)};
      launch_kernel(body, {P::blocks(rows), Body::shared_bytes});
    });
  });
}

}  // namespace whence

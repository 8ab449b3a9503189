// Cross-entropy of rows of logits with their targets, and its backward (tensor/kernels.h).
// One pass over the vocabulary in each direction: the largest logit and the sum of powers are found together.
// Rows may begin further apart than they are long (tensor/device/product_layout.h): 50257 logits are read in packs if
// they begin 50304 apart.
#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/power.h"
#include "cuda/vocabulary/rows.h"

namespace whence::gpu {
namespace {

// Loads the next N numbers of a row, `left` of which exist; the others are -inf, whose power is 0, and are not read.
template <class C, int N, class From> WHENCE_HD Numbers<C, N> load_up_to(From from, index_t i, index_t left) {
  if (left >= N) return load_numbers<C, N>(from, i);
  Numbers<C, N> numbers;
  for (int k = 0; k < N; ++k) numbers.of[k] = k < left ? load<C>(from, i + k) : Number<C>(lowest<C>());
  return numbers;
}

// Per logit: 1 number read, 3 operations, 1 power: memory; with 16-bit numbers arithmetic comes close.
template <class T, class P> struct CrossEntropy {
  static constexpr const char* name = "cross_entropy";
  static constexpr int threads = P::threads;
  using C = compute_t<T>;
  static constexpr std::size_t shared_bytes = P::template reduce_bytes<PowerSum<C>>;
  Global<const T> logits;
  Global<const index_t> target;
  Global<C> norm, loss;                 // (top, total) and loss of each row; (0, 1) and 0 in ignored rows
  index_t rows, width, apart, ignored;  // apart: from row to row

  WHENCE_HD void operator()(Thread& t) const {
    const Team<P> team(t);
    const index_t row = team.row();
    if (row >= rows) return;
    const index_t right = target[row];
    if (right == ignored) {
      if (team.member() != 0) return;
      store(norm, 2 * row, Number<C>(C(0))), store(norm, 2 * row + 1, Number<C>(C(1)));
      return store(loss, row, Number<C>(C(0)));
    }
    PowerSum<C> sum = empty_power_sum<C>();
    team.each_pack(
        width, [&](int, index_t j) { add_pack(sum, load_up_to<C, P::pack>(logits, row * apart + j, width - j), ~0u); });
    sum = team.reduce(sum, JoinPowerSums<C>{});
    if (team.member() != 0) return;
    store(norm, 2 * row, sum.first), store(norm, 2 * row + 1, sum.second);
    store(loss, row, Number<C>(math::log(sum.second) - (load<C>(logits, row * apart + right) - sum.first)));
  }
};

// Per logit: 1 number read, 1 written, 3 operations, 1 power: memory. Zeros are written between the rows of dx, because
// products read them.
template <class T, class P> struct CrossEntropyBackward {
  static constexpr const char* name = "cross_entropy_backward";
  static constexpr int threads = P::threads;
  using C = compute_t<T>;
  static constexpr std::size_t shared_bytes = 0;
  Global<const T> logits;
  Global<const index_t> target;
  Global<const C> norm, dy;  // dy has one element
  Global<T> dx;
  index_t rows, width, apart, ignored;
  C share;

  WHENCE_HD void operator()(Thread& t) const {
    const Team<P> team(t);
    const index_t row = team.row();
    if (row >= rows) return;
    const index_t right = target[row];
    const bool counts = right != ignored;
    const Number<C> top = load<C>(norm, 2 * row), total = load<C>(norm, 2 * row + 1), zero = Number<C>(C(0)),
                    gradient = load<C>(dy, 0) * Number<C>(share);
    team.each_pack(apart, [&](int, index_t j) {
      auto pack = load_up_to<C, P::pack>(logits, row * apart + j, width - j);
      for (int k = 0; k < P::pack; ++k) {
        // The target's own entry is p - 1, formed before the rounding to T.
        const Number<C> power = math::exp(pack.of[k] - top) / total;
        const Number<C> slope = j + k == right ? Number<C>(power - Number<C>(C(1))) : power;
        pack.of[k] = counts ? Number<C>(slope * gradient) : zero;
      }
      store_numbers(dx, row * apart + j, pack);
    });
  }
};

}  // namespace
}  // namespace whence::gpu

namespace whence {

using namespace gpu;

// Returns the stride of rows. Logits with other than two axes are contiguous.
static index_t apart(const Tensor& logits) {
  return logits.rank() == 2 ? std::max(logits.strides()[0], logits.size(1)) : logits.size(-1);
}

void CudaKernels::cross_entropy(
    const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm, const Tensor& loss) {
  if (logits.numel() == 0) return;
  const index_t width = logits.size(-1), rows = logits.numel() / width;
  visit_real("cross_entropy", logits.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    launch_rows<T, passing(512)>(rows, width, rows_fit_packs<T>(apart(logits), {&logits}), [&]<class P>(P) {
      return CrossEntropy<T, P>{global<const T>(logits), global<const index_t>(target), global<C>(norm),
          global<C>(loss), rows, width, apart(logits), ignored};
    });
  });
}

void CudaKernels::cross_entropy_backward(const Tensor& logits, const Tensor& target, index_t ignored,
    const Tensor& norm, const Tensor& dy, double share, const Tensor& dx) {
  if (logits.numel() == 0) return;
  const index_t width = logits.size(-1), rows = logits.numel() / width;
  visit_real("cross_entropy_backward", logits.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    launch_rows<T, passing(512)>(rows, width, rows_fit_packs<T>(apart(logits), {&logits, &dx}), [&]<class P>(P) {
      return CrossEntropyBackward<T, P>{global<const T>(logits), global<const index_t>(target), global<const C>(norm),
          global<const C>(dy), global<T>(dx), rows, width, apart(logits), ignored, static_cast<C>(share)};
    });
  });
}

}  // namespace whence

// Cross-entropy of rows of logits.    logits x:[... v]  target:[...]  ->  scalar y
//   y = (1/n) sum over the n rows that are not ignored of  log(sum_v e^{x_v}) - x_target        0 when n = 0
//   dx_v = (dy / n) (e^{x_v} / sum_w e^{x_w} - [v = target])        0 in ignored rows
// The sum is the same with 1 in place of n. Only the mean needs n. The CPU counts it, so on a GPU the mean waits for
// the targets. Saved: the logits and two numbers of each row (tensor/kernels.h), not the softmax. The loss of
// 16-bit logits is f32, and their gradient is rounded once.
#include <algorithm>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/ops/index.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct CrossEntropy {
  static constexpr const char* name = "cross_entropy";
  index_t ignored;
  bool is_sum = false;
  struct Saved {
    SavedTensor logits, target, norm;  // logits: [rows, v]
    Shape shape;
    double share = 1;  // 1/n for the mean
  };

  Tensor forward(Saved& saved, const Tensor& logits, const Tensor& target) const {
    check(logits, target);
    const index_t width = logits.size(-1), rows = target.numel();
    const Tensor x = raw::rows_of(logits);
    const Tensor t = detail::checked_index(name, "target", target, width, ignored);
    const DType wide = compute_dtype(x.dtype());
    const Tensor norm = Tensor::empty({rows, 2}, wide, x.device()), loss = Tensor::empty({rows}, wide, x.device());
    kernels(x).cross_entropy(x, t, ignored, norm, loss);
    saved.logits.as(x, logits);
    saved.target = t;
    saved.norm = norm;
    saved.shape = logits.shape();
    // Rows run in any order; reduce sums them by a fixed tree: the same bits for any number of threads.
    Tensor total = raw::reduce(Reduction::sum, loss, {}, false);
    if (!is_sum) {
      const Tensor targets = raw::to_device(t, Device::cpu());
      const index_t counted = rows - std::count(targets.data<index_t>(), targets.data<index_t>() + rows, ignored);
      saved.share = counted ? 1 / static_cast<double>(counted) : 0;
      total = raw::unary(functions::Affine{}, total, {saved.share, 0});
    }
    return total;
  }

  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2>) const {
    // The logits are the largest tensor of a language model. dx reuses their memory if nobody else owns them and this
    // is their last backward.
    const Tensor x = saved.logits.get();
    const bool in_place = detail::releasing && x.owns_storage_alone();
    const Tensor dx = in_place ? x : raw::like_rows(x);
    kernels(x).cross_entropy_backward(
        x, saved.target.get(), ignored, saved.norm.get(), raw::contiguous(dy), saved.share, dx);
    if (in_place) dx.storage().written(Site::current());
    return {raw::reshape(dx, saved.shape), Tensor()};
  }

  // Each row's maximum, a constant, is subtracted first, so that no exponential overflows.
  Tensor composed(const std::vector<Tensor>& in) const {
    const Tensor wide = reshape(cast(in[0], compute_dtype(in[0].dtype())), as_rows(in[0].shape()));
    std::vector<double> picks, counts;
    double counted = 0;
    for (const double target : in[1].to_vector()) {
      counts.push_back(target != static_cast<double>(ignored));
      picks.push_back(counts.back() * target);
      counted += counts.back();
    }
    const auto column = [&](const std::vector<double>& numbers, DType dtype) {
      return raw::to_device(Tensor::of(numbers, {wide.size(0), 1}, dtype), wide.device());
    };
    const Tensor x =  // an ignored row is 0, whatever its logits
        masked(wide - raw::reduce(Reduction::maximum, wide.detach(), {1}, true), column(counts, DType::boolean));
    const Tensor of_targets = gather(x, 1, column(picks, DType::i64));
    const Tensor total = sum((log(sum(exp(x), {1}, true)) - of_targets) * column(counts, x.dtype()));
    return total * (is_sum ? 1 : counted > 0 ? 1 / counted : 0);
  }
  static std::array<Tensor, 2> inputs(const Saved& saved) { return {saved.logits.get(), saved.target.get()}; }

  std::vector<Stop> stops(const Saved&, std::size_t) const { return {Stop::no_target}; }

  static void check(const Tensor& logits, const Tensor& target) {
    raw::require_floating(name, "logits", logits);
    bool agree = logits.rank() == target.rank() + 1 && logits.size(-1) > 0;
    for (int axis = 0; agree && axis < target.rank(); ++axis) agree = logits.size(axis) == target.size(axis);
    if (!agree)
      fail(name, "logits are ", logits.shape(), ", target is ", target.shape(),
          "; [... v] and [...] required, nothing broadcasts");
  }
};

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, index_t ignored, Site site) {
  return apply(CrossEntropy{ignored}, site, logits, raw::to_device(target, logits.device()));
}
Tensor cross_entropy_sum(const Tensor& logits, const Tensor& target, index_t ignored, Site site) {
  return apply(CrossEntropy{ignored, true}, site, logits, raw::to_device(target, logits.device()));
}

}  // namespace whence

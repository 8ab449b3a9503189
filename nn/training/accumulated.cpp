#include "nn/training/accumulated.h"

#include <cmath>

#include "autograd/node.h"
#include "tensor/raw.h"

namespace whence {

// An odd number of parts is summed in order, because ranks do not split it further. The number of waiting sums is the
// depth of the tree.
void sum_by_halves(Optimizer& optimizer, std::int64_t begin, std::int64_t end,
    const std::function<void(std::int64_t part)>& add_gradients) {
  if ((end - begin) % 2 != 0) {
    optimizer.zero_gradients();
    for (std::int64_t part = begin; part < end; ++part) add_gradients(part);
    return;
  }
  const std::int64_t middle = begin + (end - begin) / 2;
  sum_by_halves(optimizer, begin, middle, add_gradients);
  const bool own = (middle - begin) % 2 == 0;  // a sum made here: another may be added in place
  std::vector<Tensor> left;
  for (const Module::Parameter& parameter : optimizer.parameters())
    left.push_back(trained(parameter) ? detail::gradient_as_held(parameter.tensor) : Tensor());
  sum_by_halves(optimizer, middle, end, add_gradients);
  for (std::size_t k = 0; k < left.size(); ++k) {
    const Module::Parameter& parameter = optimizer.parameters()[k];
    const Tensor right = trained(parameter) ? detail::gradient_as_held(parameter.tensor) : Tensor();
    if (!left[k].defined() && !right.defined()) continue;
    const auto wide = [&](const Tensor& x) { return detail::in_dtype(x, compute_dtype(parameter.tensor.dtype())); };
    Tensor sum = left[k];
    if (!left[k].defined() || !right.defined())
      sum = raw::copy(wide(right.defined() ? right : left[k]));
    else if (own)
      raw::add_into(wide(right), sum);
    else
      sum = raw::add(wide(left[k]), wide(right));
    set_gradient(parameter.tensor, sum);
  }
}

// Losses are read after all work is queued. Reading one earlier would wait for the GPU.
std::vector<LossSum> accumulate(Optimizer& optimizer, const MakeBatch& batch, const LossOf& loss_of, std::int64_t begin,
    std::int64_t end, std::optional<double> scale) {
  std::vector<LossSum> parts;
  std::vector<Tensor> losses;
  sum_by_halves(optimizer, begin, end, [&](std::int64_t part) {
    const TrainingBatch made = batch(part);
    parts.push_back({0, static_cast<double>(made.counted), static_cast<double>(made.tokens), scale});
    losses.push_back(add_gradients(made, part, loss_of, scale));
  });
  for (std::size_t k = 0; k < parts.size(); ++k) parts[k].loss = losses[k].item();
  return parts;
}

LossSum total(const std::vector<LossSum>& parts, std::int64_t n) {
  LossSum all{.scale = parts.at(0).scale};
  for (const LossSum& part : parts) {
    if (!std::isfinite(part.loss)) {
      throw FailedStep(to_text("training: the loss is ", part.loss, " at step ", n,
          "; a finite loss required; lower the learning rate or the largest norm of gradients"));
    }
    all.loss += part.loss, all.targets += part.targets, all.tokens += part.tokens;
  }
  if (all.targets == 0) throw Error("training: no target in step ", n, "; at least one required; use larger batches");
  return all;
}

}  // namespace whence

#include "nn/positional/adaptive.h"

#include "autograd/ops.h"
#include "autograd/probe.h"
#include "tensor/error.h"

namespace whence {

Adaptive::Adaptive(const char* name, std::unique_ptr<PositionalScheme> base) : base_(std::move(base)) {
  child("base", *base_);
  base_->join(inner_);
  const char* const does = !inner_.embeds.empty()       ? "embeds tokens"
                           : !inner_.transforms.empty() ? "transforms scores"
                           : !inner_.maps.empty()       ? "maps scores itself"
                           : !inner_.patterns.empty()   ? "stands for the softmax"
                           : !inner_.mixes.empty()      ? "adds to the values"
                                                        : nullptr;
  if (!does) return;
  throw InputError(name, ": the scheme inside ", does,
      "; one that only rotates or biases is required (none, rope, alibi, ...); write the other "
      "one as a sum, as in absolute + ",
      name, "(none)");
}

void Adaptive::join(Stages& stages) const {
  stages.rotates.insert(stages.rotates.end(), inner_.rotates.begin(), inner_.rotates.end());
  stages.enter(*this);
}

Tensor Adaptive::base_bias(const AttendContext& at, Site here) const {
  Tensor total;
  for (const auto& stage : inner_.biases) {
    const Scope scope(*stage.path);
    const Tensor bias = stage.scheme->bias(stage.at(at));
    total = total.defined() ? add(total, bias, here) : bias;
  }
  return total;
}

Tensor Adaptive::channels(const Tensor& scores, const Tensor& bias, Site here) {
  return concat_along(1, {scores, expand(bias, scores.shape(), here)}, here);  // [b 2h i j]
}

}  // namespace whence

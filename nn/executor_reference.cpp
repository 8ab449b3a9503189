// The reference executor: attention as the papers write it, one op per step, every intermediate named.
#include <cmath>

#include "autograd/ops.h"
#include "autograd/probe.h"
#include "nn/executor.h"

namespace whence {
namespace {

class ReferenceExecutor final : public Executor {
 public:
  const char* name() const override { return "reference"; }
  std::string refusal(const Stages&) const override { return {}; }

  Tensor attend(const AttendInputs& inputs, const Stages& stages) const override {
    AttendContext at;
    at.x = inputs.x;
    at.query = at.unrotated_query = probe("q", inputs.query);
    at.key = probe("k", inputs.key);
    at.value = probe("v", inputs.value);
    at.mask = inputs.mask;
    at.positions = inputs.positions;
    at.causal = inputs.causal;
    at.scale = 1 / std::sqrt(static_cast<double>(inputs.query.size(-1)));

    for (const auto& [scheme, path] : stages.rotates) {
      const Scope scope(*path);
      scheme->rotate(at.query, at.key, at.positions);
    }
    at.content_scores = probe("scores", matmul(at.query, transpose(at.key), at.scale));  // S = q.k / sqrt(d), [b h i j]
    for (const auto& [scheme, path] : stages.biases) {
      const Scope scope(*path);
      const Tensor bias = scheme->bias(at);
      at.bias = at.bias.defined() ? at.bias + bias : bias;
    }
    Tensor logits = at.bias.defined() ? at.content_scores + at.bias : at.content_scores;
    for (const auto& [scheme, path] : stages.transforms) {
      const Scope scope(*path);
      logits = scheme->transform_scores(logits, at);
    }
    for (const auto& [scheme, path] : stages.maps) {
      const Scope scope(*path);
      logits = scheme->map_scores(at.keep(logits), at);
    }
    const Tensor pattern = probe("pattern", softmax(probe("logits", logits), at.mask));  // masked keys get exactly 0
    Tensor output = matmul(pattern, at.value);
    for (const auto& [scheme, path] : stages.mixes) {
      const Scope scope(*path);
      output = output + scheme->mix(pattern, at);
    }
    return output;
  }
};

}  // namespace

const Executor& reference_executor() {
  static const ReferenceExecutor executor;
  return executor;
}

}  // namespace whence

#include "nn/training/recorded.h"

#include "nn/transformer.h"
#include "tensor/raw.h"

namespace whence {

std::string not_recordable(const TransformerOptions& model) {
  if (model.dropout > 0 || model.pattern_dropout > 0 || model.hidden_dropout > 0)
    return "dropout draws anew at each step";
  for (const SchemeSpec& spec : parse_schemes(model.scheme)) {
    if (!spec.part().make({model.dim, model.heads, model.length})->claims().drawn_each_step) continue;
    return spec.text() + " draws positions at each step";
  }
  return {};
}

Replay::Replay(Adam& adam, const LossOf& loss_of)
    : replayed_(adam),
      adam_(adam),
      loss_of_(loss_of),
      device_(adam.parameters().at(0).tensor.device()),
      seed_(Tensor::scalar(1, adam.parameters()[0].tensor.dtype() == DType::f64 ? DType::f64 : DType::f32, device_)),
      recorded_(device_, [this] { return work(); }) {}

// No part's number is in it: a loss that draws by it cannot be recorded.
std::vector<Tensor> Replay::work() {
  std::vector<Tensor> losses;
  sum_by_halves(adam_, 0, std::ssize(inputs_), [&](std::int64_t part) {
    const Tensor loss = loss_of_(inputs_[static_cast<std::size_t>(part)], 1);
    backward(loss, seed_);
    losses.push_back(loss.detach());
  });
  replayed_.step();
  return losses;
}

void Replay::prepare(const std::vector<TrainingBatch>& batches) {
  upload(batches);
  if (!recorded_.recorded()) adam_.zero_gradients();  // or the graph would keep a second copy
  recorded_.record_if_due();
}

void Replay::upload(const std::vector<TrainingBatch>& batches) {
  if (inputs_.empty()) {
    inputs_ = batches;
    for (TrainingBatch& batch : inputs_)
      for (Tensor& tensor : batch.tensors) tensor = raw::copy(raw::to_device(tensor, device_));
    return;
  }
  for (std::size_t part = 0; part < batches.size(); ++part) {
    inputs_[part].counted = batches[part].counted, inputs_[part].tokens = batches[part].tokens;
    for (std::size_t k = 0; k < batches[part].tensors.size(); ++k) {
      const Tensor &from = batches[part].tensors[k], &to = inputs_[part].tensors[k];
      if (!(from.shape() == to.shape()))
        throw Error(to_text("a batch is ", from.shape(), ", those before were ", to.shape()));
      raw::copy_into(raw::to_device(from, device_), to);
    }
  }
}

StepOutcome Replay::step(std::int64_t n, double learning_rate, double clip, std::optional<double> scale) {
  std::vector<LossSum> parts;
  for (const TrainingBatch& batch : inputs_)
    parts.push_back({0, static_cast<double>(batch.counted), static_cast<double>(batch.tokens), scale});
  const double targets = total(parts, n).targets, factor = scale.value_or(1);
  replayed_.prepare(learning_rate, clip * targets, factor, targets);
  raw::copy_into(raw::to_device(Tensor::scalar(factor, seed_.dtype()), device_), seed_);
  const std::vector<Tensor>& losses = recorded_.run();
  const GradientNorm norm = replayed_.finish();
  for (std::size_t k = 0; k < parts.size(); ++k) parts[k].loss = losses[k].item();
  const LossSum sum = total(parts, n);
  return {sum.loss / targets, norm.value / targets, static_cast<std::int64_t>(sum.tokens), !norm.finite()};
}

}  // namespace whence

// The weights with which one attention head solves associative recall exactly, without a positional
// encoding (Zheng et al. 2024, arXiv:2410.04798, appendix A). With one-hot tokens x, W_K = W_V = I and W_Q
// = beta I, the last row's logits are
//   without the residual   beta (x_N.x_{j-1} - x_N.x_j):  +beta behind the earlier trigger, -beta at it and at the end
//   with it                beta x_N.x_{j-1}:              +beta behind the earlier trigger
// and 0 elsewhere. The softmax looks behind the trigger, and the value there is the answer.
#pragma once

#include <memory>
#include <string>

#include "examples/whence/tasks/task.h"
#include "nn/attention/executor.h"

namespace whence::tasks {

enum class KernelForm : unsigned char {
  linear,  // one kernel: +1 on key j - 1, -1 on key j
  // the two convolutions and LeakyReLU of cdape(none, width=2, kernel=3), with weights that make the same of them
  module
};

// The scheme that turns the scores S into A = conv(S), or with the residual of the paper's
// equation 5 into A = S + conv(S).
[[nodiscard]] std::unique_ptr<PositionalScheme> recall_scheme(KernelForm form, bool residual);

// Sets the parameters of a cdape(none, width=2, kernel=3), found under `path` of
// `module`, to those of the construction:
//   w1 = [[1, -1, 0], [-1, 1, 0]],  w2 = [[0, 1/1.01, 0], [0, -1/1.01, 0]],  biases 0;
//   leaky_relu(u) - leaky_relu(-u) = 1.01 u
void set_recall_kernels(const Module& module, const std::string& path);

// ln N + 4: then the answer has more than half of the mass among N keys.
[[nodiscard]] double recall_sharpness(index_t length);

// Proposition 2 of the same appendix: two layers of plain attention do it too, but with positions. One-hot positions p;
//   layer 1  query beta p_{i-1}, key p_j, value x_j:  row i reads the token before it, u_i = x_{i-1}, nearly
//   layer 2  query beta x_i, key u_j - x_j, value x_j:  the last row looks behind the earlier trigger
// As printed, the key of layer 2 is u_j alone. But the first token has none before it and reads itself, so that its key
// is the trigger's as well when it is the trigger: x_j taken away leaves 0 there.
enum class SecondKey : unsigned char { previous_less_own, as_printed };

struct RecallOutcome {
  Errors errors;
  double least_mass = 1;  // that any sequence's last row puts on its answer
};

// Where and in which numbers the head runs.
struct RecallPlace {
  RecallPlace(const Executor& by, Device on = {}, DType in = DType::f32) : executor(by), device(on), dtype(in) {}
  const Executor& executor;
  Device device;
  DType dtype;
};
// The bare head on a batch of the task: one-hot queries, keys and values, answers by the largest of the mixed values.
[[nodiscard]] RecallOutcome recall_by_construction(
    const Batch& batch, index_t vocabulary, KernelForm form, bool residual, const RecallPlace& place);

// Likewise, the two layers one after the other.
[[nodiscard]] RecallOutcome recall_by_two_layers(
    const Batch& batch, index_t vocabulary, SecondKey key, const RecallPlace& place);

// A whole model with the construction as its weights: embedding [I 0] into twice the vocabulary, attention with
// cdape(none, width=2, kernel=3), a residual stream, and logits that read what attention wrote into the second half.
class RecallModel final : public Module {
 public:
  RecallModel(index_t vocabulary, index_t length, const std::string& executor);
  ~RecallModel() override;
  [[nodiscard]] Tensor operator()(const Tensor& tokens) const;  // [b t] -> [b t v]

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// The same of the two layers: a stream of token, position, previous token and answer, so 3 times the vocabulary and the
// length wide; scheme `absolute`, with the identity as its table.
class TwoLayerRecallModel final : public Module {
 public:
  TwoLayerRecallModel(index_t vocabulary, index_t length, const std::string& executor);
  ~TwoLayerRecallModel() override;
  [[nodiscard]] Tensor operator()(const Tensor& tokens) const;  // [b t] -> [b t v]

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace whence::tasks

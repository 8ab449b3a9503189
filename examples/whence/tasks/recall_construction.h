// The weights with which one attention head solves associative recall exactly, without a positional
// encoding (Zheng et al. 2024, arXiv:2410.04798, appendix A). With one-hot tokens x, W_K = W_V = I and W_Q
// = beta I, the last row's logits are
//   without the residual   beta (x_N.x_{j-1} - x_N.x_j):  +beta after the earlier trigger, -beta at it and at the end
//   with it                beta x_N.x_{j-1}:              +beta after the earlier trigger
// and 0 elsewhere. The softmax reads the token after the trigger, and the value there is the answer.
#pragma once

#include "examples/whence/tasks/task.h"
#include "nn/attention/attention.h"
#include "nn/layers/layers.h"

namespace whence::tasks {

enum class KernelForm : unsigned char {
  linear,  // one kernel: +1 on key j - 1, -1 on key j
  // the two convolutions and LeakyReLU of cdape(none, width=2, kernel=3), with weights that give the same kernel
  module
};

// The scheme that maps the scores S to A = conv(S), or with the residual of equation 5 to A = S + conv(S).
[[nodiscard]] std::unique_ptr<PositionalScheme> recall_scheme(KernelForm form, bool residual);

// Returns ln N + 4: then the answer has more than half of the mass among N keys.
[[nodiscard]] double recall_sharpness(index_t length);

// Proposition 2 of the same appendix: two layers of plain attention do it too, but with positions. One-hot positions p;
//   layer 1  query beta p_{i-1}, key p_j, value x_j:  row i reads the token before it, u_i = x_{i-1}, nearly
//   layer 2  query beta x_i, key u_j - x_j, value x_j:  the last row reads the token after the trigger
// As printed, the key of layer 2 is u_j alone. But the first token has no predecessor and reads itself. If it is the
// trigger, its key is the trigger's as well; subtracting x_j leaves 0 there.
enum class SecondKey : unsigned char { previous_less_own, as_printed };

struct RecallOutcome {
  Errors errors;
  double least_mass = 1;  // the smallest mass that any sequence's last row puts on its answer
};

// The head's device and dtype.
struct RecallPlace {
  AttendPlan plan;
  Device device = {};
  DType dtype = DType::f32;
};
// Runs the bare head on a batch of the task: one-hot queries, keys and values; the answer is the largest of the mixed values.
[[nodiscard]] RecallOutcome recall_by_construction(
    const Batch& batch, index_t vocabulary, KernelForm form, bool residual, const RecallPlace& place);

// Likewise for the two layers, one after the other.
[[nodiscard]] RecallOutcome recall_by_two_layers(
    const Batch& batch, index_t vocabulary, SecondKey key, const RecallPlace& place);

// A whole model with a construction as its weights: an embedding [I 0], attention that writes onto a residual stream,
// and logits that read the stream's end. v: vocabulary, n: length
//   one layer   cdape(none, width=2, kernel=3)                        stream of token and answer, 2v wide
//   two layers  plain attention, `absolute` with the identity [I]     token, position, previous token, answer: 3v + n
class RecallModel final : public Module {
 public:
  RecallModel(int layers, index_t vocabulary, index_t length, const std::string& executor);
  [[nodiscard]] Tensor operator()(const Tensor& tokens) const;  // [b t] -> [b t v]

 private:
  index_t vocabulary_;
  Embedding embedding_;
  std::unique_ptr<PositionalScheme> positions_;  // for two layers
  std::vector<std::unique_ptr<Attention>> layers_;
};

}  // namespace whence::tasks

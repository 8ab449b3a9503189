// Attention with linear biases: each head subtracts its slope times the distance.   A_ij = S_ij - m_h (i - j)
//   Not causal: -m_h (|i-j| - 0.5 [j < i]); the half tells left from right (Ruoss et al. 2023).
#include "autograd/ops.h"
#include "autograd/probe.h"
#include "nn/positional/alibi_slopes.h"
#include "nn/scheme.h"
#include "tensor/raw.h"

namespace whence {
namespace {

class Alibi final : public PositionalScheme, public BiasesScores {
 public:
  explicit Alibi(index_t heads) : slopes_(Tensor::of(alibi_slopes(heads), {1, heads, 1, 1}, DType::f64)) {}

  Claims claims() const override { return {.shift_invariant = true, .drawn = Claims::Drawn::distances}; }

  // [1|b h i j]
  Tensor bias(const AttendContext& at) const override {
    const Tensor distance = at.distance();  // i - j, [1|b 1 i j] f64
    const Tensor counted = at.causal ? distance : abs(distance) - is_left(distance) * 0.5;
    return probe("bias", cast(at.here(slopes_) * counted * -1.0, at.content_scores.dtype()));  // [1|b h i j]
  }

 private:
  // 1 where j < i, else 0.
  static Tensor is_left(const Tensor& distance) {
    return affine(
        raw::binary("alibi", functions::GreaterEqual{}, Tensor::scalar(0, DType::f64, distance.device()), distance), -1,
        1);
  }

  Tensor slopes_;  // [1 h 1 1] f64, not learned
};

const RegisterScheme registered{{.name = "alibi",
    .title = "attention with linear biases",
    .paper = "Press et al. 2022, arXiv:2108.12409",
    .equation = "A_ij = S_ij - m_h (i - j)",
    .make = [](const SchemeArguments& arguments) -> std::unique_ptr<PositionalScheme> {
      return std::make_unique<Alibi>(arguments.sizes().heads);
    }}};

}  // namespace
}  // namespace whence

// Attention with linear biases: each head subtracts its slope times the distance.   A_ij = S_ij - m_h (i - j)                    (SPEC 3.8)
//   H = 2^a heads: m_h = 2^(-8(h+1)/H). Other H: the slopes of the next lower power of two C, then elements 0, 2, 4, ... of those of 2C.
//   Not causal: -m_h (|i-j| - 0.5 [j < i]); the half tells left from right (Ruoss et al. 2023).
#include <cmath>

#include "autograd/ops.h"
#include "autograd/probe.h"
#include "nn/scheme.h"
#include "tensor/raw.h"

namespace whence {
namespace {

std::vector<double> slopes(index_t heads) {
  index_t power = 1;
  while (2 * power <= heads) power *= 2;
  const auto slope = [](index_t h, index_t count) { return std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(count)); };
  std::vector<double> result;
  for (index_t h = 0; h < power; ++h) result.push_back(slope(h, power));
  for (index_t h = 0; power + h < heads; ++h) result.push_back(slope(2 * h, 2 * power));
  return result;
}

class Alibi final : public PositionalScheme, public BiasesScores {
 public:
  explicit Alibi(index_t heads) : slopes_(Tensor::of(slopes(heads), {1, heads, 1, 1}, DType::f64)) {}

  Claims claims() const override { return {.shift_invariant = true}; }

  // [1 h i j]
  Tensor bias(const AttendContext& at) const override {
    const Tensor distance = reshape(at.positions.query, {-1, 1}) - reshape(at.positions.key, {1, -1});  // i - j, [i j] f64
    const Tensor counted = at.causal ? distance : abs(distance) - is_left(distance) * 0.5;
    return probe("bias", cast(slopes_ * counted * -1.0, at.content_scores.dtype()));
  }

 private:
  // 1 where j < i, else 0.
  static Tensor is_left(const Tensor& distance) {
    return affine(raw::binary("alibi", Binary::greater_equal, Tensor::scalar(0, DType::f64), distance), -1, 1);
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

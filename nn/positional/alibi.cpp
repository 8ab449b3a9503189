// Attention with linear biases: each head subtracts its slope times the distance.   A_ij = S_ij - m_h (i - j)
//   Not causal: -m_h (|i-j| - 0.5 [j < i]); the half tells left from right (Ruoss et al. 2023).
#include "autograd/ops.h"
#include "nn/attention/tile_terms.h"
#include "nn/positional/alibi_slopes.h"
#include "tensor/raw.h"

namespace whence {
namespace {

class Alibi final : public PositionalScheme, public ReadsByDistance {
 public:
  explicit Alibi(const SchemeArguments& arguments) : slopes_(alibi_slopes(arguments.sizes().heads)) {}

  Claims claims() const override { return {.shift_invariant = true, .drawn = Claims::Drawn::distances}; }

  std::optional<Tensor> table(const Tensor& distances, const AttendContext& context) const override {
    return context.table_once(to_text("alibi ", slopes_.size()), distances, context.dtype(), [&] {
      const Tensor rows = Tensor::empty({static_cast<index_t>(slopes_.size()), distances.size(0)}, DType::f64);
      double* next = rows.data<double>();
      for (const double slope : slopes_) {
        for (index_t n = 0; n < distances.size(0); ++n) {
          const double distance = distances.data<double>()[n];
          *next++ = -slope * (context.causal ? distance : std::abs(distance) - (distance > 0 ? 0.5 : 0));
        }
      }
      return raw::cast(rows, context.dtype());
    });
  }

 private:
  std::vector<double> slopes_;  // m_h, not learned
};

const RegisterScheme registered{{.name = "alibi",
    .title = "attention with linear biases",
    .paper = "Press et al. 2022, arXiv:2108.12409",
    .equation = "A_ij = S_ij - m_h (i - j)",
    .knob = "bias",
    .picture = SchemeInfo::distance,
    .probes = {ReadsByDistance::bias_probe("-m_h (i - j); where later keys are seen -m_h (|i - j| - 0.5 [j < i])")},
    .make = make_scheme<Alibi>}};

}  // namespace
}  // namespace whence

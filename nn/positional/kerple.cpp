// Kernelised relative positions: each head learns how its bias falls with the distance.
//                                                                                 Chi et al. 2022, arXiv:2205.09921
//   log:    b_ij = -r1 ln(1 + r2 n)        power:  b_ij = -r1 n^r2,  r2 <= 2          n = |i - j|
//   dr1 = -sum G ln(1 + r2 n)              dr1 = -sum G n^r2
//   dr2 = -sum G r1 n / (1 + r2 n)         dr2 = -sum G r1 n^r2 ln n,  0 at n = 0
// Parameters stay at or above 0.01 by projection, without gradient: one at its bound waits for a step that leads away.
#include "autograd/ops.h"
#include "nn/attention/by_distance.h"
#include "tensor/raw.h"

namespace whence {
namespace {

constexpr double least = 0.01;

class Kerple : public PositionalScheme, public ReadsByDistance {
 public:
  Claims claims() const override { return {.shift_invariant = true}; }

  std::optional<Tensor> table(const Tensor& distances, const AttendContext& context) const final {
    const Tensor n = reshape(abs(distances), {-1, 1});
    return cast(transpose(shape_of(n) * strength() * -1.0), context.dtype());
  }

 protected:
  Kerple(index_t heads, double strength_high)
      : strength_(param("strength", {heads}, Init::uniform(0, strength_high), false, {.low = least})) {}
  static Tensor widened(const Tensor& parameter) { return cast(parameter, compute_dtype(parameter.dtype())); }
  Tensor strength() const { return widened(strength_); }  // r1, [h]

  // ln(1 + r2 n) or n^r2: n [n 1] f64 -> [n h]
  virtual Tensor shape_of(const Tensor& n) const = 0;

 private:
  Tensor strength_;  // r1: [h]
};

class LogKerple final : public Kerple {
 public:
  explicit LogKerple(index_t heads)
      : Kerple(heads, 2), rate_(param("rate", {heads}, Init::uniform(0, 1), false, {.low = least})) {}

 private:
  Tensor shape_of(const Tensor& n) const override {
    const Tensor rate = widened(rate_);
    return log1p(raw::to_device(raw::cast(n, rate.dtype()), rate.device()) * rate);
  }

  Tensor rate_;  // r2: [h]
};

class PowerKerple final : public Kerple {
 public:
  explicit PowerKerple(index_t heads)
      : Kerple(heads, 1),
        exponent_(param("exponent", {heads}, Init::uniform(0, 2), false, {.low = least, .high = 2})) {}

 private:
  // e^(r2 ln n), and 0 with derivative 0 where n = 0
  Tensor shape_of(const Tensor& n) const override {
    const Tensor exponent = widened(exponent_);
    std::vector<double> logarithm, away;
    for (const double distance : n.to_vector()) {
      logarithm.push_back(distance > 0 ? std::log(distance) : 0);
      away.push_back(distance > 0 ? 1 : 0);
    }
    const auto beside = [&](const std::vector<double>& column) {
      return raw::to_device(Tensor::of(column, n.shape(), exponent.dtype()), exponent.device());
    };
    return exp(beside(logarithm) * exponent) * beside(away);
  }

  Tensor exponent_;  // r2: [h]
};

const RegisterScheme registered{{.name = "kerple",
    .title = "kernelised relative positions",
    .paper = "Chi et al. 2022, arXiv:2205.09921",
    .equation = "A_ij = S_ij - r1_h ln(1 + r2_h |i - j|),  or  S_ij - r1_h |i - j|^r2_h",
    .options = {option::words("form", {"log", "power"}, "how the bias falls with the distance")},
    .probes = {ReadsByDistance::bias_probe("-r1_h ln(1 + r2_h |i - j|),  or  -r1_h |i - j|^r2_h")},
    .make = [](const SchemeArguments& arguments) -> std::unique_ptr<PositionalScheme> {
      const index_t heads = arguments.sizes().heads;
      if (arguments.word("form") == "power") return std::make_unique<PowerKerple>(heads);
      return std::make_unique<LogKerple>(heads);
    }}};

}  // namespace
}  // namespace whence

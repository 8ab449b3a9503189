// Kernelised relative positions: each head learns how its bias falls with the distance.
//                                                                                 Chi et al. 2022, arXiv:2205.09921
//   log:    b_ij = -r1 ln(1 + r2 n)        power:  b_ij = -r1 n^r2,  r2 <= 2          n = |i - j|
//   dr1 = -sum G ln(1 + r2 n)              dr1 = -sum G n^r2
//   dr2 = -sum G r1 n / (1 + r2 n)         dr2 = -sum G r1 n^r2 ln n,  0 at n = 0
// Parameters are projected back to at least 0.01, without gradient: at its bound a parameter waits for a step away from
// it.
#include "autograd/op.h"
#include "autograd/ops.h"
#include "nn/attention/tile_terms.h"
#include "tensor/kernels.h"
#include "tensor/raw.h"

namespace whence {
namespace {

constexpr double least = 0.01;

Tensor beside(const Tensor& numbers, const Tensor& parameter) {
  return raw::to_device(raw::cast(numbers, parameter.dtype()), parameter.device());
}
// ln(1 + r2 n): n [n 1] f64 -> [n h]
Tensor logarithm_of(const Tensor& n, const Tensor& r2) { return log1p(beside(n, r2) * r2); }
// n^r2 = e^(r2 ln n), and 0 with derivative 0 where n = 0: n [n 1] f64 -> [n h]
Tensor power_of(const Tensor& n, const Tensor& r2) {
  const Tensor logarithm = of_each<double>(n, [](double distance) { return distance > 0 ? std::log(distance) : 0; });
  const Tensor away = of_each<double>(n, [](double distance) { return distance > 0 ? 1 : 0; });
  return exp(beside(logarithm, r2) * r2) * beside(away, r2);
}

Tensor composed_table(bool power, const Tensor& n, DType dtype, const Tensor& r1, const Tensor& r2) {
  const auto wide = [](const Tensor& r) { return cast(r, compute_dtype(r.dtype())); };
  const Tensor f = power ? power_of(n, wide(r2)) : logarithm_of(n, wide(r2));
  return cast(transpose(f * wide(r1) * -1.0), dtype);
}

// In one launch, and its gradient in another.
struct KerpleTable {
  static constexpr const char* name = "kerple";
  bool power;
  Tensor n, distances;  // [n 1] f64, and as the device reads them
  DType dtype;          // of the table
  struct Saved {
    SavedTensor r1, r2;
  };
  Tensor forward(Saved& saved, const Tensor& r1, const Tensor& r2) const {
    saved.r1 = r1, saved.r2 = r2;
    const Tensor table = Tensor::empty({r1.size(0), n.size(0)}, dtype, r1.device());
    kernels(r1).kerple(power, distances, r1, r2, table);
    return table;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2>) const {
    const Tensor r1 = saved.r1.get(), r2 = saved.r2.get(), d1 = Tensor::like(r1), d2 = Tensor::like(r2);
    kernels(r1).kerple_backward(power, distances, r1, r2, raw::contiguous(dy), d1, d2);
    return {d1, d2};
  }
  static std::array<Tensor, 2> inputs(const Saved& saved) { return {saved.r1.get(), saved.r2.get()}; }
  Tensor composed(const std::vector<Tensor>& in) const { return composed_table(power, n, dtype, in[0], in[1]); }
};

// Returns the table [h n] at distances n [n 1], f64.
Tensor table_of(bool power, const Tensor& n, const AttendContext& context, const Tensor& r1, const Tensor& r2) {
  const DType dtype = context.dtype();
  if (dtype == DType::dual || !kernels(r1).makes_terms()) return composed_table(power, n, dtype, r1, r2);
  const Tensor distances = context.on_device(raw::cast(n, compute_dtype(dtype)));
  return apply(KerpleTable{power, n, distances, dtype}, Site::current(), r1, r2);
}

class Kerple final : public PositionalScheme, public ReadsByDistance {
 public:
  explicit Kerple(const SchemeArguments& arguments) : power_(arguments.word("form") == "power") {
    const index_t heads = arguments.sizes().heads;
    const bool decays = arguments.yes("decay");
    r1_ = param("strength", {heads}, Init::uniform(0, power_ ? 1 : 2), decays, {.low = least});
    r2_ = power_ ? param("exponent", {heads}, Init::uniform(0, 2), decays, {.low = least, .high = 2})
                 : param("rate", {heads}, Init::uniform(0, 1), decays, {.low = least});
  }

  Claims claims() const override { return {.shift_invariant = true}; }

  std::optional<Tensor> table(const Tensor& distances, const AttendContext& context) const override {
    return table_of(power_, reshape(abs(distances), {-1, 1}), context, r1_, r2_);
  }

 private:
  bool power_;
  Tensor r1_, r2_;  // [h]
};

const RegisterScheme registered{{.name = "kerple",
    .title = "kernelised relative positions",
    .paper = "Chi et al. 2022, arXiv:2205.09921",
    .equation = "A_ij = S_ij - r1_h ln(1 + r2_h |i - j|),  or  S_ij - r1_h |i - j|^r2_h",
    .options = {option::words("form", {"log", "power"}, "function by which the bias falls with the distance"),
        option::yes_no("decay", "yes: weight decay shrinks r1 and r2, as in the DAPE papers' runs"),
        option::words("table", {"per_layer", "shared"}, "r1 and r2 for each layer, or for all as in KERPLE's runs")},
    .knob = "bias",
    .picture = SchemeInfo::distance,
    .probes = {ReadsByDistance::bias_probe("-r1_h ln(1 + r2_h |i - j|),  or  -r1_h |i - j|^r2_h")},
    .shared = [](const SchemeArguments& arguments) { return arguments.word("table") == "shared"; },
    .variants = {"kerple(form=power, decay=yes, table=shared)"},
    .make = make_scheme<Kerple>}};

}  // namespace
}  // namespace whence

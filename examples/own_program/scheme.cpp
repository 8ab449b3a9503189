// A scheme of your own: a bias that falls with the distance and levels off.
//   A_ij = S_ij - c_h softsign(r_h |i - j|),   c_h >= 0 and r_h >= 0 learned, each for a head
#include "autograd/ops.h"
#include "nn/attention/tile_terms.h"

using namespace whence;

Tensor softsign(const Tensor& x, Site site = Site::current());  // op.cpp

namespace {

class Levelling final : public PositionalScheme, public ReadsByDistance {
 public:
  explicit Levelling(const SchemeArguments& given)
      : depth_(param("depth", {given.sizes().heads}, Init::constant(given.number("depth")), false, {.low = 0})),
        rate_(param("rate", {given.sizes().heads}, Init::constant(given.number("rate")), false, {.low = 0})) {}

  // The scheme's promises. `whence conformance levelling` and check_scheme test them.
  Claims claims() const override { return {.shift_invariant = true}; }

  // distances [n] -> the bias of each head at each distance, [h n]
  std::optional<Tensor> table(const Tensor& distances, const AttendContext& context) const override {
    const Tensor away = cast(context.on_device(abs(distances)), context.dtype());
    return unsqueeze(depth_, 1) * softsign(unsqueeze(rate_, 1) * unsqueeze(away, 0)) * -1.0;
  }

 private:
  Tensor depth_, rate_;  // c and r, [h]
};

const RegisterScheme registered{{.name = "levelling",
    .title = "a bias that falls with the distance and levels off",
    .paper = "one's own",
    .equation = "A_ij = S_ij - c_h softsign(r_h |i - j|)",
    .options = {option::number("depth", 4, {0, 100}, "c of all heads at first"),
        option::number("rate", 0.25, {0, 100}, "r of all heads at first")},
    .probes = {ReadsByDistance::bias_probe("-c_h softsign(r_h |i - j|)")},
    .make = make_scheme<Levelling>}};

}  // namespace

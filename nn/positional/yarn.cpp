// YaRN: rotary positions stretched for longer runs; fast pairs keep their trained speeds.
//                                                                                Peng et al. 2023, arXiv:2309.00071
//   cd(r)    = d ln(L / (2 pi r)) / (2 ln base)             the pair with r rotations within the original length L
//   lo, hi   = max(floor cd(beta_fast), 0), min(ceil cd(beta_slow), d - 1)
//   keep_m   = 1 - clip((m - lo) / (hi - lo), 0, 1)         1: as trained, 0: interpolated
//   theta'_m = theta_m keep_m + (theta_m / kappa)(1 - keep_m)
//   q, k times 0.1 ln kappa + 1                             so that logits get its square
// The ramp is linear in m, as in the authors' code; in their paper it is linear in the number of rotations.
// dynamic: kappa = max(1, T/L) for a run of T tokens, whatever their positions: each token decoded beyond L changes all
// rows before it, and costs a pass over the whole run.
#include <numbers>

#include "nn/positional/rotation.h"

namespace whence {
namespace {

class Yarn final : public Rotating {
 public:
  explicit Yarn(const SchemeArguments& arguments)
      : Rotating(arguments, other_speeds(arguments)),
        dynamic_(arguments.yes("dynamic")),
        base_(arguments.number("base")),
        factor_(arguments.number("factor")),
        original_(static_cast<double>(arguments.or_length("original", "original length"))),
        theta_(rotation_frequencies(width(), base_)) {
    if (dynamic_) arguments.refuse_if_given("factor", "with dynamic=yes, which works it out from the run");
    const double fast = arguments.number("beta_fast"), slow = arguments.number("beta_slow");
    if (fast <= slow)
      throw InputError("yarn: beta_fast ", fast, " and beta_slow ", slow, " given; beta_fast > beta_slow required");
    const double low = std::max(std::floor(pair_of(fast)), 0.0);
    double high = std::min(std::ceil(pair_of(slow)), static_cast<double>(width()) - 1);
    if (high <= low) high = low + 0.001;
    for (std::size_t m = 0; m < theta_.size(); ++m)
      keep_.push_back(1 - std::clamp((static_cast<double>(m) - low) / (high - low), 0.0, 1.0));
  }

 private:
  static Lengths other_speeds(const SchemeArguments& arguments) {
    if (!arguments.yes("dynamic")) return {};
    return {arguments.or_length("original", "original length") + 1, Claims::any_length};
  }

  // cd(rotations)
  double pair_of(double rotations) const {
    return static_cast<double>(width()) * std::log(original_ / (2 * std::numbers::pi * rotations)) /
           (2 * std::log(base_));
  }

  PairSpeeds speeds_for(double tokens) const override {
    const double kappa = dynamic_ ? std::max(1.0, tokens / original_) : factor_;
    PairSpeeds run{.theta = {}, .magnitude = 0.1 * std::log(kappa) + 1};
    for (std::size_t m = 0; m < theta_.size(); ++m)
      run.theta.push_back(theta_[m] * keep_[m] + theta_[m] / kappa * (1 - keep_[m]));
    return run;
  }

  bool dynamic_;
  double base_, factor_, original_;  // factor: kappa if it is fixed; original: L
  std::vector<double> theta_, keep_;
};

std::vector<SchemeOption> yarn_options() {
  std::vector<SchemeOption> all{option::number("factor", 4, {1, 1e6}, "kappa: how many times longer runs become"),
      option::integer("original", 0, {0, 1e9}, "L, the length that was trained on; 0: the training length"),
      option::yes_no("dynamic",
          "yes: the factor follows the run's length; each token decoded beyond L costs a pass over the whole "
          "run"),
      option::number("beta_fast", 32, {1e-3, 1e6}, "pairs with at least this many rotations within L are unchanged"),
      option::number("beta_slow", 1, {1e-3, 1e6}, "pairs with fewer rotations within L are interpolated")};
  for (SchemeOption& option : rotation_options(1.001))
    all.push_back(std::move(option));  // with base 1 all pairs have one speed
  return all;
}

const RegisterScheme registered{{.name = "yarn",
    .title = "rotary positions stretched for longer runs",
    .paper = "Peng et al. 2023, arXiv:2309.00071",
    .equation = "rope with theta_m keep_m + theta_m / kappa (1 - keep_m), times 0.1 ln kappa + 1",
    .options = yarn_options(),
    .picture = SchemeInfo::turn,
    .probes = Rotating::probes(" (0.1 ln kappa + 1)"),
    .variants = {"yarn(factor=2, original=4)", "yarn(original=4, dynamic=yes, layout=interleaved)",
        "yarn(original=4, width=2)"},
    .make = make_scheme<Yarn>}};

}  // namespace
}  // namespace whence

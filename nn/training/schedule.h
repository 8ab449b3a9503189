// The learning rate as a pure function of the step: a linear warm-up, then constant, linear, cosine (Loshchilov and
// Hutter 2016, Eq. 5), or constant with a linear end (wsd: warm-up, stable, decay; Hu et al. 2024).
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "tensor/error.h"
#include "tensor/shape.h"
#include "tensor/suggest.h"

namespace whence {

enum class Decay : unsigned char { constant, linear, cosine, wsd };

inline const char* to_string(Decay decay) {
  constexpr const char* names[] = {"constant", "linear", "cosine", "wsd"};
  return names[static_cast<std::size_t>(decay)];
}
// Throws InputError that lists the names if `name` is unknown.
inline Decay decay_of(const std::string& name) {
  return chosen("schedule", name, {Decay::constant, Decay::linear, Decay::cosine, Decay::wsd});
}

struct ScheduleOptions {
  double peak = 1e-3;   // the rate after the warm-up
  index_t steps = 1;    // steps of the whole run
  index_t warm_up = 0;  // in [0, steps]
  Decay decay = Decay::constant;
  double floor = 0;          // the final rate of all but constant, in [0, peak]; constant has none
  double decay_share = 0.1;  // the share of the steps, at the end, in which wsd falls; in (0, 1]
};

class Schedule {
 public:
  // Throws InputError if an option is out of range or has no effect.
  explicit Schedule(const ScheduleOptions& options) : options_(options) {
    const auto refuse = [](const auto&... parts) { throw InputError("schedule: " + to_text(parts...)); };
    if (!(options.peak > 0) || !std::isfinite(options.peak))
      refuse("learning rate ", options.peak, " given; a finite number above 0 required");
    if (options.steps < 1) refuse(options.steps, " steps given; 1 or more required");
    if (options.warm_up < 0 || options.warm_up > options.steps)
      refuse(options.warm_up, " warm-up steps given; 0 to ", options.steps, " (all steps) required");
    if (!(options.floor >= 0) || options.floor > options.peak)
      refuse("floor ", options.floor, " given; 0 to ", options.peak, " required");
    if (options.floor != 0 && options.decay == Decay::constant)
      refuse(
          "floor ", options.floor, " given for a constant schedule, where it has no effect; use linear, cosine or wsd");
    if (!(options.decay_share > 0) || options.decay_share > 1)
      refuse("a share of ", options.decay_share, " of the steps to decay in given; above 0, at most 1 required");
  }

  // Steps count from 1, else Error. During the warm-up: peak step / warm_up. The peak is reached at the last step of
  // the warm-up; without one, at step 1. The floor is reached one step after the run, so with a floor of 0 no step has
  // rate 0.
  double operator()(index_t step) const {
    const auto& [peak, steps, warm_up, decay, floor, share] = options_;
    if (step < 1) fail("schedule", "step ", step, " given; steps count from 1");
    if (step < warm_up) return peak * static_cast<double>(step) / static_cast<double>(warm_up);
    if (decay == Decay::constant) return peak;
    // The last step at the peak; except for wsd it is the first one.
    const index_t stable = decay == Decay::wsd ? steps - std::llround(share * static_cast<double>(steps)) : 0;
    const index_t begin = std::max<index_t>({warm_up, stable, 1});
    const double done =
        std::clamp(static_cast<double>(step - begin) / static_cast<double>(steps + 1 - begin), 0.0, 1.0);
    const double left = decay == Decay::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * done)) : 1 - done;
    return floor + (peak - floor) * left;
  }

 private:
  ScheduleOptions options_;
};

}  // namespace whence

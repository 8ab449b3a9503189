#include "nn/training/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tensor/error.h"

namespace whence {

Decay decay_of(const std::string& name) {
  return chosen("schedule", name, {Decay::constant, Decay::linear, Decay::cosine, Decay::wsd});
}

const char* to_string(Decay decay) {
  constexpr const char* names[] = {"constant", "linear", "cosine", "wsd"};
  return names[static_cast<std::size_t>(decay)];
}

Schedule::Schedule(const ScheduleOptions& options) : options_(options) {
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

double Schedule::operator()(index_t step) const {
  const auto& [peak, steps, warm_up, decay, floor, share] = options_;
  if (step < 1) fail("schedule", "step ", step, " given; steps count from 1");
  if (step < warm_up) return peak * static_cast<double>(step) / static_cast<double>(warm_up);
  if (decay == Decay::constant) return peak;
  // The last step at the peak; except for wsd it is the first one.
  const index_t stable = decay == Decay::wsd ? steps - std::llround(share * static_cast<double>(steps)) : 0;
  const index_t begin = std::max<index_t>({warm_up, stable, 1});
  const double done = std::clamp(static_cast<double>(step - begin) / static_cast<double>(steps + 1 - begin), 0.0, 1.0);
  const double left = decay == Decay::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * done)) : 1 - done;
  return floor + (peak - floor) * left;
}

}  // namespace whence

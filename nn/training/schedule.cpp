#include "nn/training/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence {

Decay decay_of(const std::string& name) {
  return chosen("schedule", name, {Decay::constant, Decay::linear, Decay::cosine});
}

const char* to_string(Decay decay) {
  switch (decay) {
    case Decay::constant: return "constant";
    case Decay::linear: return "linear";
    default: return "cosine";
  }
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
    refuse("floor ", options.floor, " given for a constant schedule, where it has no effect; use linear or cosine");
}

double Schedule::operator()(index_t step) const {
  const auto& [peak, steps, warm_up, decay, floor] = options_;
  if (step < 1) fail("schedule", "step ", step, " given; steps count from 1");
  if (step < warm_up) return peak * static_cast<double>(step) / static_cast<double>(warm_up);
  if (decay == Decay::constant) return peak;
  const index_t begin = std::max<index_t>(warm_up, 1);  // the step at which the peak is reached
  const double done = std::min(1.0, static_cast<double>(step - begin) / static_cast<double>(steps + 1 - begin));
  const double left = decay == Decay::linear ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return floor + (peak - floor) * left;
}

}  // namespace whence

// The learning rate as a pure function of the step: a linear warm-up, then constant, linear, cosine (Loshchilov and
// Hutter 2016, Eq. 5), or constant with a linear end (wsd: warm-up, stable, decay; Hu et al. 2024).
#pragma once

#include <string>

#include "tensor/shape.h"

namespace whence {

enum class Decay : unsigned char { constant, linear, cosine, wsd };

// Throws InputError that lists the names if `name` is unknown.
Decay decay_of(const std::string& name);
const char* to_string(Decay decay);

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
  explicit Schedule(const ScheduleOptions& options);

  // Steps count from 1, else Error. During the warm-up: peak step / warm_up. The peak is reached at the last step of
  // the warm-up; without one, at step 1. The floor is reached one step after the run, so with a floor of 0 no step has
  // rate 0.
  double operator()(index_t step) const;

 private:
  ScheduleOptions options_;
};

}  // namespace whence

// The learning rate as a pure function of the step: a linear warm-up, then constant, linear, cosine (Loshchilov and
// Hutter 2016, Eq. 5), or constant and linear in the end (wsd: warm-up, stable, decay; Hu et al. 2024).
#pragma once

#include <string>

#include "tensor/shape.h"

namespace whence {

enum class Decay : unsigned char { constant, linear, cosine, wsd };

// Throws InputError that lists the names when `name` is none of them.
Decay decay_of(const std::string& name);
const char* to_string(Decay decay);

struct ScheduleOptions {
  double peak = 1e-3;   // the rate after the warm-up
  index_t steps = 1;    // of the whole run
  index_t warm_up = 0;  // of these, in [0, steps]
  Decay decay = Decay::constant;
  double floor = 0;          // what all but constant end at, in [0, peak]; constant has none
  double decay_share = 0.1;  // of the steps, the last ones, in which wsd falls; in (0, 1]
};

class Schedule {
 public:
  // Throws InputError when an option is out of range or has no effect.
  explicit Schedule(const ScheduleOptions& options);

  // Steps count from 1, else Error. During the warm-up: peak step / warm_up. The peak is reached at its last step;
  // without a warm-up at step 1, as with a warm-up of 1. The floor is reached one step after the run, so that with a
  // floor of 0 no step of the run has rate 0.
  double operator()(index_t step) const;

 private:
  ScheduleOptions options_;
};

}  // namespace whence

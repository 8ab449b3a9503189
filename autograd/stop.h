// Stop: the reason why an op's derivative is 0. An op reports it for its inputs (autograd/node.h: stops);
// autograd/inspect/zeros.h follows it through a graph.
#pragma once

namespace whence {

// The order matters: if an entry is a sum of terms that are 0 for several reasons, the first counts. Reasons that a
// change takes away come first; a mask hands on a reason only if there is no other.
enum class Stop : unsigned char {
  nothing,     // the gradient passes
  saturated,   // a sigmoid or similar, far from 0: almost nothing passes
  leaking,     // leaky_relu below 0: a hundredth passes
  flat,        // interpolation between equal rows: a table that is zero has no slope
  whole,       // interpolation at an integer position: floor and ceiling are one row
  clamped,     // at a bound: p_max, the end of a table
  dead,        // relu below 0
  weightless,  // a softmax gives it no weight: underflow
  no_target,   // no loss is computed there
  unread,      // a row of a table that nothing reads
  zero,        // a derivative of 0 for which its op gives no reason
  cancelled,   // its terms add up to 0: softmax ignores what shifts a whole row
  sole,        // a softmax gives it all the weight: no other key can take some
  masked,      // a mask overwrites it
  frozen,      // a parameter that is not trained
  constant,    // made of constants: no gradient is computed
  no_path      // the result does not depend on it
};
inline constexpr int stop_count = static_cast<int>(Stop::no_path) + 1;

// True for reasons that make a gradient small instead of 0.
constexpr bool vanishes(Stop stop) { return stop == Stop::saturated || stop == Stop::leaking; }

}  // namespace whence

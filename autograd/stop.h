// What it means where an op's derivative is 0. An op says it of its inputs (autograd/node.h: stops);
// autograd/inspect/zeros.h follows it through a graph.
#pragma once

namespace whence {

// In order: where an entry has several, the first counts. What learning can change comes before what it cannot.
enum class Stop : unsigned char {
  nothing,     // the gradient passes
  saturated,   // a sigmoid or its like far from 0: next to nothing passes
  leaking,     // leaky_relu below 0: a hundredth passes
  flat,        // interpolation between equal rows: a table that is zero has no slope
  whole,       // interpolation at a whole position: floor and ceiling are one row
  clamped,     // at a bound: p_max, the end of a table
  dead,        // relu below 0
  cancelled,   // its terms add up to 0: what moves a whole row, softmax ignores
  sole,        // a softmax gives it all the weight: nothing else is there to take some
  weightless,  // a softmax gives it no weight: masked, or underflow
  no_target,   // no loss is taken there
  unread,      // a row of a table that nobody reads
  zero,        // a derivative of 0 that its op has no name for
  masked,      // a mask overwrites it
  frozen,      // a parameter that is not trained
  constant,    // made of constants: no gradient is taken
  no_path      // the result does not depend on it
};
inline constexpr int stop_count = static_cast<int>(Stop::no_path) + 1;

// Of those that make a gradient small instead of 0.
constexpr bool vanishes(Stop stop) { return stop == Stop::saturated || stop == Stop::leaking; }

}  // namespace whence

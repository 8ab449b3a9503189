// Stop: the reason why an op's derivative is 0. An op reports it for its inputs (autograd/node.h: stops);
// autograd/inspect/zeros.h follows it through a graph.
#pragma once

namespace whence {

// The order matters: if an entry is a sum of terms that are 0 for several reasons, the first counts. Reasons that a
// change takes away come first; a mask hands on a reason only if there is no other.
enum class Stop : unsigned char {
  nothing,    // the gradient passes
  saturated,  // a sigmoid or similar, far from 0: almost nothing passes
  leaking,    // leaky_relu below 0: a hundredth passes
  flat,       // interpolation between equal rows: a table that is zero has no slope
  whole,      // interpolation at an integer position: floor and ceiling are one row
  clamped,    // at a bound: p_max, the end of a table
  dead,       // relu below 0
  rounded,    // a softmax whose weight rounds to 0 or to 1
  no_target,  // no loss is computed there
  unread,     // a row of a table that nothing reads
  zero,       // a derivative of 0 for which its op gives no reason
  cancelled,  // its terms add up to 0: softmax ignores what shifts a whole row
  sole,       // a softmax over one key: no other can take some of its weight
  masked,     // a mask overwrites it
  frozen,     // a parameter that is not trained
  constant,   // made of constants: no gradient is computed
  no_path     // the result does not depend on it
};
inline constexpr int stop_count = static_cast<int>(Stop::no_path) + 1;

// Returns why a softmax over `keys` keys stops the gradient of an entry with this weight, where it does.
constexpr Stop stop_of_weight(double weight, long keys) {
  return keys == 1 ? Stop::sole : weight < 1e-30 || weight > 1 - 1e-6 ? Stop::rounded : Stop::nothing;
}

// True for reasons that make a gradient small instead of 0.
constexpr bool vanishes(Stop stop) { return stop == Stop::saturated || stop == Stop::leaking; }

}  // namespace whence

// Why is a gradient zero? Each entry of a gradient that is 0, or next to nothing, has a cause: the op that stopped it,
// on the way from the result back to it. Nothing here knows a single op. Backward is linear in dy, so whatever an entry
// of dx depends on is found by sending random positive numbers, one kind of entry of dy at a time, through the op's own
// backward:
//   - it depends on entries that are not 0: the gradient lives, or its terms cancel;
//   - it depends on entries that are 0 alone: it takes over their cause;
//   - it depends on nothing: the op's derivative is 0 there, and the op says what that means (Node::stops).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autograd/inspect/paths.h"
#include "autograd/inspect/stop_words.h"

namespace whence {

struct Cause {
  Stop stop = Stop::nothing;
  std::string op = {}, line = {};  // "lerp_at", "cope.cpp:61"; empty: the graph has no op for it
  friend bool operator==(const Cause&, const Cause&) = default;
};
// Its number among `causes`, where it is entered if it is new. A byte holds 255: beyond that another one of its kind,
// or else the last one, stands for it.
unsigned char number_of(const Cause& cause, std::vector<Cause>& causes);

struct Zeros {
  std::vector<Cause> causes;  // the first is that there is none: the gradient lives
  // By the name of a place: for each entry of its gradient, row-major, a number into `causes`. An entry that is
  // exactly 0 always has a cause. Places that y does not depend on are not here.
  std::map<std::string, std::vector<unsigned char>> of;
};

// For the gradient of y by each of `places`. `seed` as in grad(). A place with several nodes lives where one of them
// does.
[[nodiscard]] Zeros why_zero(
    const Tensor& y, const Tensor& seed, const std::vector<Place>& places, Site site = Site::current());

}  // namespace whence

// Why is a gradient zero? Each entry of a gradient that is 0, or almost 0, has a cause: the op that stopped it between
// the result and the entry. Nothing here knows a single op. Backward is linear in dy. So the entries of dy on which an
// entry of dx depends are found by sending random positive numbers through the op's own backward, one kind of entry of
// dy at a time:
//   - it depends on entries that are not 0: the gradient lives, or its terms cancel;
//   - it depends only on entries that are 0: it takes over their cause;
//   - it depends on nothing: the op's derivative is 0 there, and the op names the reason (Node::stops).
// One cause is named. In a sum, mending any cause would let the gradient pass: the first in the order of Stop is named,
// and a masked pair hands on none. On one way all causes stop it: the nearest to the result is named.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autograd/inspect/paths.h"

namespace whence {

// A Stop in words.
const char* to_string(Stop stop);   // "clamped"
const char* meaning_of(Stop stop);  // one clause: why it is 0
const char* way_out_of(Stop stop);  // one clause: what would change that

struct Cause {
  Stop stop = Stop::nothing;
  std::string op = {}, line = {};  // "lerp_at", "cope.cpp:68"; empty: the graph has no op for it
  friend bool operator==(const Cause&, const Cause&) = default;
};
// Returns the cause's number in `causes`, and adds it if it is new. A byte holds 255. Beyond that, another cause of the
// same kind, or else the last one, is used instead.
unsigned char number_of(const Cause& cause, std::vector<Cause>& causes);

struct Zeros {
  std::vector<Cause> causes;  // the first means that there is none: the gradient lives
  // For each place, by name: a number into `causes` for each entry of its gradient, row-major. An entry that is exactly
  // 0 always has a cause. Places that y does not depend on are missing.
  std::map<std::string, std::vector<unsigned char>> of;
};

// Explains the gradient of y with respect to each of `places`. `seed` as in grad(). A place with several nodes lives if
// any of them does.
[[nodiscard]] Zeros why_zero(
    const Tensor& y, const Tensor& seed, const std::vector<Place>& places, Site site = Site::current());

// Returns the same for one place in words, a line for each cause: "3 entries: clamped in clamp (cope.cpp:65): ...".
[[nodiscard]] std::string why_zero(const Tensor& y, const Place& x, Site site = Site::current());
[[nodiscard]] inline std::string why_zero(const Tensor& y, const Tensor& x, Site site = Site::current()) {
  return why_zero(y, place_of("x", x), site);
}

}  // namespace whence

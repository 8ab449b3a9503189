// Stops at the first number that is not finite.
#pragma once

#include "autograd/thread.h"

namespace whence {

// While alive, every op of this thread checks its result, forward and backward. The first NaN or infinity is an Error
// that names the op, its line, the index of the number, and the range of each input.
struct CheckFinite : Exchange<bool> {
  CheckFinite() : Exchange(detail::check_finite, true) {}
};

}  // namespace whence

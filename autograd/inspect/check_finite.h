// CheckFinite: stops at the first number that is not finite.
#pragma once

#include "autograd/observer.h"

namespace whence {

// While it lives, the result of every op of this thread is checked, forward and backward. The first NaN or infinity
// throws a NotFinite with the op, its line, the index of the number, and the range of each input.
class CheckFinite : public Observer {
 public:
  void saw(const OpRun& run) override;
};

}  // namespace whence

// CheckFinite: stops at the first number that is not finite.
#pragma once

#include "autograd/observer.h"

namespace whence {

// While alive, every op of this thread checks its result, forward and backward. The first NaN or infinity is a
// NotFinite that names the op, its line, the index of the number, and the range of each input.
class CheckFinite : public Observer {
 public:
  void saw(const OpRun& run) override;
};

}  // namespace whence

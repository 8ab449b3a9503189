// Explains one number as lines of text: the numbers that it was computed from.
#pragma once

#include <string>

#include "examples/whence/look/inspection.h"

namespace whence::look {

// `what`: "dLoss/dgates layer=0 head=3 i=41 j=17". The name defaults to logits, the layer to 0, and axes of extent 1 may be
// left out. Throws InputError "--explain: ..." if there is no such number.
[[nodiscard]] std::string explained(const Inspection& inspection, const std::string& what);

}  // namespace whence::look

// One number worked out, as lines of text.
#pragma once

#include <string>

#include "examples/whence/look/inspection.h"

namespace whence::look {

// `what`: "dLoss/dgates layer=0 head=3 i=41 j=17". Without a name the logits are meant, without a layer the first, and
// axes of one place need not be named. InputError "--explain: ..." when there is no such number.
[[nodiscard]] std::string explained(const Inspection& inspection, const std::string& what);

}  // namespace whence::look

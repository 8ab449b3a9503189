// One number worked out, as lines of text.
#pragma once

#include <string>

#include "examples/whence/look/inspection.h"

namespace whence::look {

// `what`: "logits layer=0 head=3 i=41 j=17", or "dLoss/dgates ...". InputError where there is no such number.
[[nodiscard]] std::string explained(const Inspection& inspection, const std::string& what);

}  // namespace whence::look

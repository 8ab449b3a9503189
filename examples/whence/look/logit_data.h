// The page's data about logits: their attribution, and the answers after earlier layers.
#pragma once

#include "examples/whence/look/page_data.h"

namespace whence::look {

// Returns, for every token that has a target, the target and the likeliest other answers. Null if there are no logits.
[[nodiscard]] Json logits_json(const Inspection& inspection, PageNumbers& numbers);

}  // namespace whence::look

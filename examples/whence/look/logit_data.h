// What the page shows of logits: where they came from, and what earlier layers would have answered.
#pragma once

#include "examples/whence/look/page_data.h"

namespace whence::look {

// Of every token that is asked, the wanted answer and the likeliest others. Null where there are no logits.
[[nodiscard]] Json logits_json(const Inspection& inspection, PageNumbers& numbers);

}  // namespace whence::look

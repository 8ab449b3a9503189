// The page of an inspection: one file of HTML that refers to nothing outside.
#pragma once

#include <string>
#include <vector>

#include "examples/look/edits.h"
#include "examples/look/inspection.h"
#include "examples/report/report.h"

namespace whence::look {

// With what is there besides: edits, and plots over the training (examples/look/history.h).
[[nodiscard]] std::string page_of(const Inspection& inspection, const std::vector<EditOutcome>& edits = {},
    const std::vector<report::Plot>& history = {});

}  // namespace whence::look

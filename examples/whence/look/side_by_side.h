// Several trained models on one sequence, side by side: what each makes of it, and the gradients that come back.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/look/subject.h"
#include "examples/whence/report/report.h"

namespace whence::look {

struct SideBySide {
  std::vector<std::string> pictures;  // SVG, one for each run: maps of pairs, values and the sizes of their gradients
  std::vector<report::Plot> plots;    // of what a scheme knows of each token: "log_kept"
};

// Of each run the head whose pattern has the largest gradient, on its first test sequence. InputError as subject_of().
[[nodiscard]] SideBySide side_by_side(const std::vector<SubjectOptions>& runs);

}  // namespace whence::look

// The page of an inspection: one file of HTML that refers to nothing outside.
#pragma once

#include <string>
#include <vector>

#include "examples/look/edits.h"
#include "examples/look/inspection.h"
#include "examples/report/report.h"

namespace whence::look {

// What is there besides: plots over the training (examples/look/history.h), edits, and another inspection of the same
// tokens, which every map can be shown beside, or less which.
struct Besides {
  std::vector<report::Plot> history = {};
  std::vector<EditOutcome> edits = {};
  const Inspection* beside = nullptr;
};
// InputError when it takes more than `most_bytes`, which browsers open slowly: fewer tokens are required.
inline constexpr std::size_t most_bytes = std::size_t(25) << 20;
// The same before anything is made, by the quantities alone: two of them where another inspection is shown beside.
void require_small_page(const Inspection& inspection, bool two);
[[nodiscard]] std::string page_of(const Inspection& inspection, const Besides& besides = {});

}  // namespace whence::look

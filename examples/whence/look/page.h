// The page of an inspection: one file of HTML that refers to nothing outside.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/look/edits.h"
#include "examples/whence/look/inspection.h"
#include "examples/whence/look/overview.h"
#include "examples/whence/report/report.h"

namespace whence::look {

// What is there besides: plots over the training (examples/whence/look/history.h), edits, and the data of other inspections of
// the same tokens, which every map can be shown beside, or less which.
struct Besides {
  std::vector<report::Plot> history = {};
  std::vector<EditOutcome> edits = {};
  std::vector<std::string> beside = {};
};
// InputError when it takes more than `most_bytes`, which browsers open slowly: fewer tokens are required.
inline constexpr std::size_t most_bytes = std::size_t(25) << 20;
// The same before anything is made, by the quantities alone, where `others` are shown beside it.
void require_small_page(const Inspection& inspection, std::size_t others);
[[nodiscard]] std::string page_of(const Inspection& inspection, const Besides& besides = {});
[[nodiscard]] std::string page_of(
    const Overview& overview, const Rows& rows, const std::vector<report::Plot>& history = {});

}  // namespace whence::look

// The page of an inspection: one file of HTML that refers to nothing outside.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/look/edits.h"
#include "examples/whence/look/inspection.h"
#include "examples/whence/look/overview.h"
#include "examples/whence/look/page_data.h"
#include "examples/whence/report/report.h"

namespace whence::look {

// What is there besides: plots over the training (examples/whence/look/history.h), edits, and the data of other
// inspections of the same tokens, which every map can be shown beside, or less which.
struct Besides {
  std::vector<report::Plot> history = {};
  std::vector<EditOutcome> edits = {};
  Json patches = {};  // Patching::maps
  std::vector<Json> beside = {};
  PageNumbers numbers = {};  // of those in `beside`
  bool links = true;         // derivatives between neighbours, which take most of the time
};
// Of numbers that browsers still open quickly. InputError where a page would have more, with the length that fits.
inline constexpr std::size_t most_bytes = std::size_t(25) << 20;
// Asked before anything is made, where `others` are shown beside it: sizes come from a planned pass.
void require_small_page(const Subject& subject, std::size_t others);
[[nodiscard]] std::string page_of(const Inspection& inspection, Besides besides = {});
[[nodiscard]] std::string page_of(const Overview& overview, const Rows& rows, Besides besides = {});

}  // namespace whence::look

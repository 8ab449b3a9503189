// The page of an inspection: one file of HTML that refers to nothing outside.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/look/edits.h"
#include "examples/whence/look/inspection.h"
#include "examples/whence/look/page_data.h"
#include "examples/whence/report/table.h"

namespace whence::look {

// Further content of a page: edits, and the data of other inspections of the same tokens. Every map can be shown next to theirs, or as a difference.
struct Besides {
  std::vector<EditOutcome> edits = {};
  Json patches = {};                           // Patching::maps
  std::vector<Json> beside = {}, rivals = {};  // of whole passes; of results and answers
  PageNumbers numbers = {};                    // the numbers of `beside`
  bool served = false;                         // an engine answers the page (serve.h)
  bool links = true;                           // derivatives between neighbours; they take most of the time
};
// The most bytes of numbers that a browser still opens quickly.
inline constexpr std::size_t most_bytes = std::size_t(25) << 20;
// Throws InputError with a length that fits if a page with `others` more runs would have more. Sizes are from a planned pass.
void require_small_page(const Subject& subject, std::size_t others);
[[nodiscard]] std::string page_of(const Inspection& inspection, Besides besides = {});

}  // namespace whence::look

// The data of the page as JSON, which examples/whence/look/viewer/ reads.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/look/edits.h"
#include "examples/whence/look/inspection.h"
#include "examples/whence/look/overview.h"

namespace whence::look {

// Numbers are base64 of little-endian f32 or f64, causes a byte for each entry.
[[nodiscard]] std::string json_of(const Inspection& inspection, const std::vector<EditOutcome>& edits = {});
// Of another checkpoint of the same run: without links, routes, graph and edits.
[[nodiscard]] std::string checkpoint_json_of(const Inspection& inspection);
// Of a long text: pools, windows and strips.
[[nodiscard]] std::string json_of(const Overview& overview, const Rows& rows);

}  // namespace whence::look

// Which number somebody asks for: "dLoss/dgates layer=0 head=3 i=41 j=17".
#pragma once

#include <string>

#include "examples/whence/look/inspection.h"

namespace whence::look {

// Where in an inspection it is.
struct NamedNumber {
  const Quantity* quantity;
  bool gradient;
  std::vector<index_t> at;
  std::size_t element;  // the same, counted row by row
};

// Without a name the logits are meant, without a layer the first, and axes of one place need not be named. InputError
// "--explain: ..." when there is no such number.
[[nodiscard]] NamedNumber number_named(const Inspection& inspection, const std::string& text);

}  // namespace whence::look

// Which number somebody asks for: "dLoss/dgates layer=0 head=3 i=41 j=17".
#pragma once

#include <string>

#include "examples/whence/look/inspection.h"

namespace whence::look {

// Where in an inspection it is.
struct Wanted {
  const Quantity* quantity;
  bool gradient;
  Shape at;
};

// Without a name the logits are meant, without a layer the first, and axes of one place need not be named. InputError,
// with `option` in front, when there is no such number.
[[nodiscard]] Wanted wanted_of(const Inspection& inspection, const std::string& what, const std::string& option);

// The same of a quantity of pairs, for all keys j of one query i: the text does not name j, whose place in `at` is 0.
[[nodiscard]] Wanted wanted_row_of(const Inspection& inspection, const std::string& what, const std::string& option);

// Which element, row by row, stands at a position.
[[nodiscard]] std::size_t element_at(const Shape& at, const Shape& shape);

}  // namespace whence::look

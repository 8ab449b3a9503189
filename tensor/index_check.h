// IndexCheck: a range that indices must be in, and the Error about an index outside it.
#pragma once

#include "tensor/error.h"
#include "tensor/shape.h"

namespace whence {

struct IndexCheck {
  const char* op;
  const char* argument;
  index_t count;  // allowed: [0, count),
  index_t also;   // or this number, if it is negative

  WHENCE_HD bool allows(index_t value) const { return (value >= 0 && value < count) || (also < 0 && value == also); }
};

// Throws "take_rows: index at [1,0] is 5; a value in [0, 5) required", for that element of an index of this shape.
[[noreturn]] void index_out_of_range(const IndexCheck& check, const Shape& shape, index_t element, index_t value);

}  // namespace whence

#include "tensor/shape.h"

#include <algorithm>
#include <ostream>

#include "tensor/error.h"

namespace whence {

template <class Tag> void PerAxis<Tag>::too_many_axes() {
  fail("shape", "more than ", max_rank, " axes given; at most ", max_rank, " are supported; merge axes with reshape");
}
template class PerAxis<ShapeTag>;
template class PerAxis<StridesTag>;

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape result = Shape::filled(rank, 1);
  for (int axis = -1; axis >= -rank; --axis) {
    const index_t extent_a = -axis <= a.rank() ? a[axis] : 1, extent_b = -axis <= b.rank() ? b[axis] : 1;
    if (extent_a != extent_b && extent_a != 1 && extent_b != 1) {
      fail(op, "a is ", a, ", b is ", b, "; extents ", extent_a, " and ", extent_b, " of axis ", axis,
          " differ and neither is 1; reshape or expand one of them");
    }
    result[axis] = extent_a == 1 ? extent_b : extent_a;
  }
  return result;
}

index_t countable(const Shape& shape) {
  index_t product = 1;
  bool empty = false;
  for (const index_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(product, std::max<index_t>(extent, 1), &product) || product >> 59)
      return -1;
    empty = empty || extent == 0;
  }
  return empty ? 0 : product;
}

int normal_axis(const char* op, int axis, int rank) {
  if (axis < -rank || axis >= rank)
    fail(op, "axis ", axis, " given for ", rank, " axes; an axis in [", -rank, ", ", rank, ") is required");
  return axis < 0 ? axis + rank : axis;
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (int axis = 0; axis < shape.rank(); ++axis) out << (axis ? "," : "") << shape[axis];
  return out << ']';
}

std::string to_string(const Shape& shape) { return to_text(shape); }

}  // namespace whence

// Lookup in tables, the same on every device: by index, and at a real-valued position.
#pragma once

#include "tensor/convert.h"
#include "tensor/strided_index.h"

namespace whence {

// Lookup along an axis by an index. x is seen as [outer, rows, inner] with the axis in the middle, and the index as
// [lines, count, inner]; if the index has extent 1 on an axis before it, a line serves several outers.
// REQUIRES: there are numbers to look up.
struct Lookup {
  StridedIndex<1> line;  // maps the number of an outer to that of its line
  index_t outer, rows, count;
  Divisor inner, line_length;  // count inner

  // `with_index` has the index's extents, except before the axis, where it has x's.
  static Lookup of(const Shape& with_index, const Shape& index, int axis, index_t rows) {
    const Shape leading = with_index.leading(axis);
    Strides steps = contiguous_strides(index.leading(axis));
    for (int k = 0; k < axis; ++k)
      if (index[k] == 1) steps[k] = 0;
    index_t inner = 1;
    for (int k = axis + 1; k < index.rank(); ++k) inner *= index[k];
    const index_t numbers = numel(with_index);
    return {StridedIndex<1>(leading, {steps}), numel(leading), rows, index[axis], {inner, numbers},
        {index[axis] * inner, numbers}};
  }
};

// Sums one column (outer, inner), its terms one after another.
template <class T> struct SumColumns {
  const T* x;
  const index_t* index;
  compute_t<T>* y;  // zeroed
  Lookup at;
  WHENCE_HD void operator()(index_t column) const {
    const auto [outer, k] = at.inner(column);
    const index_t inner = at.inner.by();
    const T* from = x + outer * at.line_length.by() + k;
    const index_t* places = index + at.line(outer)[0] * at.line_length.by() + k;
    compute_t<T>* into = y + outer * at.rows * inner + k;
    for (index_t j = 0; j < at.count; ++j) into[places[j * inner] * inner] += compute_t<T>(from[j * inner]);
  }
};

// Interpolation of a table at a real-valued position.  (CoPE's Listing 1)
//   a = floor(p),  c = ceil(p),  w = p - a        p clamped to [0, rows - 1]; NaN counts as row 0
template <class C> struct PlaceInTable {
  std::int32_t below;  // a
  C share;             // w, the weight of row c; 0 if p is an integer
  WHENCE_HD PlaceInTable(C position, index_t rows) {
    const C last = C(static_cast<double>(rows - 1)), above_zero = position > C(0) ? position : C(0);
    const C inside = above_zero < last ? above_zero : last;
    below = static_cast<std::int32_t>(inside);
    share = inside > C(below) ? inside - C(below) : C(0);  // for a dual too: no derivative at an integer
  }
  WHENCE_HD std::int32_t above() const { return below + (share > C(0) ? 1 : 0); }  // c
};

}  // namespace whence
